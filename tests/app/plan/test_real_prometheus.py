"""`hedgerow plan` reads a real Prometheus that scraped a running router, or that has a history.

The server requires TLS and a password, as Prometheus itself supports them.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from math import cos, pi
from pathlib import Path
from typing import Any

import pytest

from router.lab.plan.observed import Observed, Place
from router.lab.plan.sources.prometheus import read
from router.lab.plan.sources.prometheus_api import (
    POINTS_MAX,
    Prometheus,
    PrometheusError,
    basic,
    fetcher,
)
from router.lab.plan.sources.question import Question
from router.lab.plan.types_file import parse
from tests.app.plan.prometheus_server import (
    PASSWORD,
    SCRAPE_S,
    History,
    Server,
    backfill,
    needs_prometheus,
    prometheus,
)
from tests.app.plan.test_server import run
from tests.harness.messages import chat
from tests.harness.over_tls import OTHER_CERT
from tests.harness.process import RouterProcess, serving
from tests.harness.reading import Response
from tests.harness.running import long_scenario
from tests.places import CERT

pytestmark = needs_prometheus

# -- a running router ---------------------------------------------------------------------------

WINDOW_S = 4.0
EARLY = ("no two of them", "no demand", "no series")  # errors before there is a complete window
LIVE_TYPES = "types: [{name: gpu, cost: 2, regions: [eu], models: {emulated: {throughput: 20000}}}]"


async def ask(router: RouterProcess, tokens: int = 40, words: int = 200) -> Response:
    client = await router.client()
    try:
        prompt = [{"role": "user", "content": "word " * words}]
        body = chat(model="emulated", messages=prompt, max_tokens=tokens, ignore_eos=True)
        await client.send(body)
        answer = await client.recv_response("POST")
    finally:
        client.close()
    assert answer.status == 200, answer
    return answer


CLIENTS = 3
ENOUGH = 60  # requests, so that those at the ends of the range matter little


async def planned(server: Server, types: Path, *words: str) -> tuple[int, str, str]:
    """Run the command as a user does. Returns its exit status, its output and its errors."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "router", "plan", *server.flags, "--types", str(types), "--json"),
        *(f"--window={WINDOW_S:g}s", "--history=12h", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    child._transport.close()  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    assert child.returncode is not None
    return child.returncode, out.decode(), err.decode()


@long_scenario
async def test_a_plan_for_a_running_router(tmp_path: Path) -> None:
    types, config, log = (tmp_path / name for name in ("plan.yaml", "hedgerow.yaml", "access.log"))
    types.write_text(LIVE_TYPES)
    config.write_text(
        "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nregion: eu\n"
        f"access_log: {{path: {log}, flush: 20ms}}\n"
    )
    async with serving(config, "--emulate", "3") as router:
        await ask(router)  # the counters of the model exist from here on
        with prometheus(tmp_path, [router.admin_port]) as server:
            done = asyncio.Event()

            async def client() -> None:
                while not done.is_set():
                    await ask(router)

            clients = [asyncio.create_task(client()) for _ in range(CLIENTS)]
            while True:
                await asyncio.sleep(WINDOW_S)
                status, out, err = await planned(server, types)
                if status != 0:
                    assert any(words in err for words in EARLY), err
                elif log.read_bytes().count(b"\n") >= ENOUGH:
                    break
            done.set()
            await asyncio.gather(*clients)
            now_s = time.time() // WINDOW_S * WINDOW_S + WINDOW_S
            question = Question(window_s=WINDOW_S, history_s=3600.0)
            source = Prometheus(server.url, server.fetch)
            await asyncio.sleep(now_s - time.time() + 2.0 * SCRAPE_S)
            observed = read(source, question, time.time(), parse(LIVE_TYPES))
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        check(json.loads(out), observed, lines)


def check(found: dict[str, Any], observed: Observed, lines: list[dict[str, Any]]) -> None:
    place = Place("emulated", "eu")
    (pool,) = found["pools"]
    assert (pool["model"], pool["region"], pool["type"], pool["now"]) == (
        "emulated",
        "eu",
        "gpu",
        3,
    )
    assert pool["plan"] >= 1
    assert found["places"][0]["forecast"]["distrust"], "seconds of history are no forecast"
    assert found["places"][0]["utilisation"] > 0.0
    # The same windows in the router's own log.
    series = observed.demand[place]
    lines = [
        line
        for line in lines
        if observed.begin_s <= line["ts"] + line["duration_ms"] / 1000.0 < observed.now_s
    ]
    output = sum(line["output_tokens"] for line in lines)
    prompt = sum(line["prompt_tokens"] - line.get("cached_tokens", 0) for line in lines)
    assert output == 40 * len(lines) > 0
    # At each end of the range, a scrape may come before or after the last request of each client.
    edge = 2 * CLIENTS
    assert sum(series.requests) == pytest.approx(len(lines), rel=0.25, abs=edge)
    assert sum(series.output) == pytest.approx(output, rel=0.25, abs=edge * 40)
    assert sum(series.prompt) == pytest.approx(prompt, rel=0.25, abs=100.0)
    assert observed.running == {place: {"gpu": 3}}
    assert observed.waiting == {place: 0.0}


# -- nine days of several routers ----------------------------------------------------------------

DAY_S, STEP_S = 86400.0, 120.0
NOW = time.time()  # when the module is imported; a test may run much later
END = NOW + 3600.0  # of the samples
BEGIN = NOW - 9 * DAY_S
RESTART = NOW - 4.3 * DAY_S  # of router a
RETIRED = NOW - 6 * DAY_S  # router c
GAP = (NOW - 30 * 3600.0, NOW - 27 * 3600.0)  # nothing was scraped
CHANGED = NOW - 7200.0  # another replica
PROMPT, CACHED, OUTPUT = 900.0, 300.0, 100.0
TYPES = """\
types:
  - {name: h100, cost: 4, regions: [eu, us], models: {m: {throughput: 400, min: 1}}}
  - {name: spot, cost: 1, regions: [eu], models: {m: {throughput: 400, max: 2}}}
"""
EU, US = Place("m", "eu"), Place("m", "us")


def requests(at: float) -> float:
    """Requests up to a time, with a daily curve of one per second at night and three at noon."""
    turn = 2.0 * pi / DAY_S
    return 2.0 * at - (cos(turn * at) - 1.0) / turn


def counters(
    instance: str,
    share: float,
    begin: float = BEGIN,
    end: float = END,
    region: str = "eu",
    urgency: str = "normal",
    env: str = "prod",
) -> History:
    """The counters of a router, which starts with zeros at `begin`."""
    labels = f'model="m",region="{region}",class="{urgency}",instance="{instance}",env="{env}"'
    counted = [(at, share * (requests(at) - requests(begin))) for at in times(begin, end)]
    return {
        f"hedgerow_model_requests_total{{{labels}}}": counted,
        **{
            f'hedgerow_model_tokens_total{{{labels},kind="{kind}"}}': [
                (at, size * value) for at, value in counted
            ]
            for kind, size in (("prompt", PROMPT), ("cached", CACHED), ("output", OUTPUT))
        },
    }


def times(begin: float, end: float) -> list[float]:
    count = int((end - begin) // STEP_S)
    ahead = [begin + number * STEP_S for number in range(count + 1)]
    return [at for at in ahead if not GAP[0] < at < GAP[1]]


def joined(*parts: History) -> History:
    """Histories with the samples of equal series one after another."""
    found: dict[str, list[tuple[float, float]]] = {}
    for part in parts:
        for name, samples in part.items():
            found.setdefault(name, []).extend(samples)
    return found


def history() -> History:
    gauges: dict[str, list[tuple[float, float]]] = {}
    for instance in ("a", "b"):  # two routers of the same fleet
        for region, kind, before, after in (
            *(("eu", "h100", 3, 3), ("eu", "spot", 1, 2), ("us", "h100", 2, 2)),
            ("us", "l40s", 1, 1),
        ):
            labels = f'model="m",region="{region}",type="{kind}",instance="{instance}",env="prod"'
            gauges[f"hedgerow_model_replicas{{{labels}}}"] = [
                (at, after if at >= CHANGED else before) for at in times(BEGIN, END)
            ]
    waits = {"normal": 0.0, "batch": 50.0}
    for urgency, depth in waits.items():
        labels = f'class="{urgency}",instance="a",env="prod"'
        gauges[f"hedgerow_queue_depth{{{labels}}}"] = [(at, depth) for at in times(BEGIN, END)]
    return joined(
        counters("a", 0.6, end=RESTART - 1.0),
        counters("a", 0.6, RESTART),
        counters("b", 0.4),
        counters("c", 0.3, end=RETIRED),
        counters("a", 0.5, region="us"),
        counters("a", 1.0, urgency="batch"),
        counters("z", 9.0, env="staging"),
        gauges,
    )


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("prometheus")
    backfill(folder, history())
    with prometheus(folder) as server:
        yield server


def test_nine_days_with_a_restart_a_gap_and_several_routers(week: Server) -> None:
    question = Question(window_s=900.0, history_s=14 * DAY_S, match='env="prod"')
    observed = read(Prometheus(week.url, week.fetch), question, NOW, parse(TYPES))
    assert observed.demand.keys() == {EU, US}
    windows = observed.windows
    assert windows == pytest.approx(9 * 96, abs=2)
    for number in range(windows):
        begin = observed.begin_s + number * 900.0
        end = begin + 900.0
        own = requests(end) - requests(begin)
        retired = 0.3 * max(0.0, requests(min(end, RETIRED)) - requests(begin))
        # Prometheus does not see what a router counted between its last scrape and its restart.
        rel = 0.2 if begin <= RESTART <= end else 0.05
        eu, us = observed.demand[EU], observed.demand[US]
        assert eu.requests[number] == pytest.approx(2.0 * own + retired, rel=rel), number
        tokens = 1.1 * own + retired  # a tenth of batch counts
        assert eu.prompt[number] == pytest.approx((PROMPT - CACHED) * tokens, rel=rel), number
        assert eu.output[number] == pytest.approx(OUTPUT * tokens, rel=rel), number
        assert us.tokens[number] == pytest.approx(0.5 * own * 700.0, rel=0.05), number
    assert observed.running == {EU: {"h100": 3, "spot": 2}, US: {"h100": 2}}
    assert observed.unchanged_s == {EU: pytest.approx(7200.0, abs=300.0)}
    assert observed.waiting == {EU: 0.0, US: 0.0}
    notes = " ".join(observed.notes)
    assert "no type 'l40s' in the types file: 1 replicas are not counted" in notes
    assert "windows of 900 s without samples, or beside such a window" in notes


def test_the_command_trusts_this_forecast(
    week: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    types = tmp_path / "plan.yaml"
    types.write_text(TYPES)
    words = ["--types", str(types), "--match", 'env="prod"', "--history", "14d"]
    assert run(*week.flags, *words, "--method", "seasonal", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    pools = {(one["region"], one["type"]): one for one in found["pools"]}
    assert {key: one["now"] for key, one in pools.items()} == {
        ("eu", "h100"): 3,
        ("eu", "spot"): 2,
        ("us", "h100"): 2,
    }
    assert pools["eu", "spot"]["plan"] == 2, "the cheap type comes first, up to its maximum"
    for place in found["places"]:
        assert place["forecast"]["error"] < 0.05
        assert place["forecast"]["distrust"] == ""
    # Without the matchers, the nine times larger traffic of the other environment counts, too.
    assert run(*week.flags, *words[:2], *words[4:], "--method", "seasonal", "--json") == 0
    all_ = {
        (one["region"], one["type"]): one for one in json.loads(capsys.readouterr().out)["pools"]
    }
    assert all_["eu", "h100"]["plan"] > 3 * pools["eu", "h100"]["plan"]


def test_a_range_of_more_points_than_the_server_allows(week: Server) -> None:
    client = Prometheus(week.url, week.fetch)
    query = 'hedgerow_queue_depth{class="batch"}'
    end, step_s = NOW - 60.0, 60.0
    begin = end - 1.5 * POINTS_MAX * step_s
    (found,) = client.query_range(query, begin, end, step_s)
    missing = (GAP[1] - GAP[0]) / step_s
    assert len(found.samples) == pytest.approx(9 * DAY_S / step_s - missing, abs=20)
    with pytest.raises(PrometheusError, match="bad_data: exceeded maximum resolution of 11,000"):
        client._ask("query_range", "matrix", query=query, start=begin, end=end, step=step_s)


def test_what_the_server_refuses(
    week: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    types = tmp_path / "plan.yaml"
    types.write_text(TYPES)
    own = ["--types", str(types)]

    def refused(*words: str) -> str:
        assert run(*own, *words) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert PASSWORD.partition(":")[2] not in err
        return err

    assert "bad_data: " in refused(*week.flags, "--running-query", "count(")
    assert "parse error" in refused(*week.flags, "--match", "env=")
    assert "no series" in refused(*week.flags, "--match", 'env="none"')
    assert "cannot be reached: [SSL: CERTIFICATE_VERIFY_FAILED]" in refused(
        "--prometheus", week.url, "--ca-file", OTHER_CERT
    )
    wrong = tmp_path / "password"
    wrong.write_text("me:wrong")
    for words in (["--basic-auth-file", str(wrong)], []):
        assert "HTTP 401 Unauthorized" in refused(
            "--prometheus", week.url, "--ca-file", CERT, *words
        )
    with pytest.raises(PrometheusError, match="HTTP 404"):
        Prometheus(f"{week.url}/prefix", fetcher(basic(PASSWORD), CERT)).query("up", NOW)
