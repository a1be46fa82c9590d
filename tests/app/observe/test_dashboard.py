"""The Grafana dashboard in deploy/ shows metrics that a running router exposes."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import yaml

from router.app import families
from tests.app.observe.expressions import Samples, problems
from tests.app.observe.promtool import Page, evaluate, needs_promtool
from tests.faults.process.metrics import scrape
from tests.harness.behaviours import in_turn, rst_after_request
from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, event, token
from tests.harness.queueing import ONE, waiting
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import running, scenario
from tests.places import ROOT

FOLDER = ROOT / "deploy" / "grafana"


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((FOLDER / "hedgerow.json").read_text())["panels"]
    return found


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel.get("targets", [])]


async def page() -> Page:
    """The metrics of a router with all that the dashboard shows."""
    go = asyncio.Event()
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    counts = event({"choices": [], "usage": {**usage, "prompt_tokens_details": CACHED}})

    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await go.wait()
            await connection.send(SSE_HEAD, chunk(token("a")), chunk(token("b", "stop")))
            await connection.send(chunk(counts), chunk(DONE), LAST_CHUNK)

    # The first replica fails a request, and a later request has to wait.
    async with running(in_turn(rst_after_request, then=behave), behave, replica=ONE) as router:
        asked = [asyncio.create_task(router.ask(chat(stream=True), "POST")) for _ in range(3)]
        await eventually(lambda: waiting(router) == 1, "a waiting request")
        go.set()
        assert all(answer.complete for answer in await asyncio.gather(*asked))
        await router.log(3)
        # The load of a replica has samples after the router has polled it.
        for _ in range(100):
            samples = await scrape(router.app.admin_port)
            # Predictions are judged only when there are enough of them, so their errors have no
            # sample yet.
            (errors,) = [one for one in families.FLEET if one.name == "prediction_error_ratio"]
            samples[f"hedgerow_{errors.name}", frozenset((each, "") for each in errors.labels)] = (
                0.5
            )
            if not unexposed(set(samples)):
                break
            await asyncio.sleep(0.05)
    return samples


CACHED = {"cached_tokens": 4}


@scenario
async def test_a_running_router_exposes_all_that_it_shows() -> None:
    assert unexposed(set(await page())) == {}


@needs_promtool
@scenario
async def test_each_expression_has_a_result(tmp_path: Path) -> None:
    wanted = {}
    for expr in expressions():
        shown = expr.replace("$__rate_interval", "1m").replace("$job", ".*")
        wanted[f"clamp_max(count(({shown}) == ({shown})), 1)"] = ["{}"]  # NaN is not equal to NaN
    evaluate({}, await page(), wanted, tmp_path)


def unexposed(samples: Samples) -> dict[str, list[str]]:
    """Expressions of the dashboard, each with what it names and no sample has."""
    found = {expr: problems(expr, samples) for expr in expressions()}
    return {expr: names for expr, names in found.items() if names}


def test_each_legend_has_labels_that_its_expression_keeps() -> None:
    for panel in panels():
        for target in panel.get("targets", []):
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                grouped = re.findall(r"\bby \(([^)]*)\)", target["expr"])
                kept = [re.findall(r"\w+", words) for words in grouped]
                assert all(label in words for words in kept), panel["title"]


def test_panels_have_their_own_place_and_the_provisioned_source() -> None:
    sources = yaml.safe_load((FOLDER / "datasources.yaml").read_text())["datasources"]
    used = {
        target["datasource"]["uid"] for panel in panels() for target in panel.get("targets", [])
    }
    assert used == {source["uid"] for source in sources}
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not taken & cells, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in panels()}) == len(panels())
