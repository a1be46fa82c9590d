"""The forecast of a first token is what the engine then does, for any state without preemption."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from random import Random

import httpx
import pytest
import uvloop

from bench.fleet.forecast import first_token_s
from router.app.emulated_fleet import EmulatedFleet
from router.lab.emulator.core.engine_core import FIRST_TOKEN, EngineCore
from router.lab.emulator.core.request import Request
from router.lab.emulator.core.timing import PROFILES, CoreConfig
from tests.app.emulator.conftest import OPTIONS, Fleet, checked
from tests.app.emulator.test_server import raw_post
from tests.harness.ports import free_port

TIMING = PROFILES["realistic"]
CONFIG = CoreConfig(max_num_seqs=6, max_num_batched_tokens=512, num_blocks=600, token_events=False)


def crowded(seed: int, leap: bool, priority: bool = False) -> tuple[EngineCore[Request], float]:
    """An engine after some random requests, and the time."""
    rng = Random(seed)
    core: EngineCore[Request] = EngineCore(
        replace(CONFIG, leap=leap, priority_scheduling=priority), TIMING
    )
    now = 0.0
    for number in range(rng.randint(0, 14)):
        now += rng.expovariate(8.0)
        run(core, now)
        core.submit(request(f"r{number}", rng, priority=rng.randint(0, 3)), now)
    now += rng.expovariate(8.0)
    run(core, now)
    return core, now


def request(name: str, rng: Random, priority: int = 0) -> Request:
    tokens = rng.randint(1, 1500)
    shared = rng.choice([1000, 2000, rng.randrange(10_000, 99_999)])
    hashes = [shared + block for block in range(tokens // CONFIG.block_size)]
    return Request(name, tokens, rng.randint(1, 60), hashes, priority)


def run(core: EngineCore[Request], until: float) -> None:
    while (due := core.next_event(until)) is not None and due <= until:
        core.advance(until)


def first_token_at(core: EngineCore[Request], name: str) -> float:
    while True:
        due = core.next_event(inf)
        assert due is not None
        for what, ended in core.advance(due):
            if what == FIRST_TOKEN and ended.id == name:
                return core.clock


@pytest.mark.parametrize("leap", [False, True])
@pytest.mark.parametrize("seed", range(150))
def test_a_forecast_comes_true(seed: int, leap: bool) -> None:
    core, now = crowded(seed, leap)
    own = request("own", Random(-seed - 1))
    seconds = first_token_s(core, own.prompt_tokens, own.block_hashes, now)
    core.submit(own, now)
    assert first_token_at(core, "own") - now == pytest.approx(seconds, rel=0.1, abs=1e-6)


def test_most_forecasts_are_exact() -> None:
    """The context of decoding requests is taken as it is now; it grows a little meanwhile."""
    exact = 0
    for seed in range(100):
        core, now = crowded(seed, leap=True)
        own = request("own", Random(-seed - 1))
        seconds = first_token_s(core, own.prompt_tokens, own.block_hashes, now)
        core.submit(own, now)
        exact += first_token_at(core, "own") - now == pytest.approx(seconds, rel=0.01, abs=1e-6)
    assert exact >= 90


@pytest.mark.parametrize("seed", range(40))
def test_less_urgent_requests_go_behind(seed: int) -> None:
    core, now = crowded(seed, leap=True, priority=True)
    own = request("own", Random(-seed - 1), priority=1)
    seconds = first_token_s(core, own.prompt_tokens, own.block_hashes, now, priority=1)
    core.submit(own, now)
    assert first_token_at(core, "own") - now == pytest.approx(seconds, rel=0.1, abs=1e-6)


def test_a_stalled_engine_has_no_first_token() -> None:
    core: EngineCore[Request] = EngineCore(CONFIG, TIMING)
    core.stall(1.0)
    assert first_token_s(core, 10, (), 1.0) == inf


REPLICA = "x-emulated-replica"
# An engine that is busy with this prompt has its next first token only after about 0.2 s.
LONG = {"prompt": "many different words, " * 350, "max_tokens": 100, "ignore_eos": True}


class WithOracle(Fleet):
    oracle = ""

    def ask(self, path: str = "/v1/completions", **body: object) -> httpx.Response:
        return self.http.post(self.oracle + path, json={"prompt": "a", "max_tokens": 1, **body})


@pytest.fixture(scope="module")
def _seen() -> Iterator[WithOracle]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        child = EmulatedFleet(2, model="tiny", options=OPTIONS, module="bench.fleet.oracle")
        fleet = WithOracle(runner.run(child.start()))
        fleet.oracle = child.beside
        yield fleet
        fleet.http.close()
        runner.run(child.stop())


@pytest.fixture
def seen(_seen: WithOracle) -> Iterator[WithOracle]:
    for url in _seen.urls:
        _seen.http.post(f"{url}/emulator/restart")  # an empty cache
    for _ in checked(_seen):
        yield _seen


def test_it_has_the_port_after_the_engines() -> None:
    port = free_port(3)
    options = ["--count", "2", "--port", str(port)]
    with subprocess.Popen(
        [sys.executable, "-m", "bench.fleet.oracle", *options], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        said = [json.loads(child.stdout.readline()) for _ in range(4)]
        child.terminate()
    assert said[2:] == [{"beside": f"http://127.0.0.1:{port + 2}"}, {"ready": True}]


def test_the_engine_with_the_earlier_first_token_answers(seen: WithOracle) -> None:
    """A request straight to one engine keeps it busy; the oracle knows although it did not send."""
    for busy, other in ((0, "emulated-1"), (1, "emulated-0")):
        with raw_post(seen.urls[busy], "/v1/completions", LONG):
            seen.until(lambda busy=busy: seen.state(busy)["running"] == 1, "busy")  # type: ignore[misc]
            assert seen.ask().headers[REPLICA] == other
        seen.until(lambda busy=busy: seen.state(busy)["running"] == 0, "idle")  # type: ignore[misc]


def test_the_engine_that_holds_the_prompt_answers(seen: WithOracle) -> None:
    prompt = "a prompt that one engine has seen already, " * 40
    seen.http.post(seen.urls[1] + "/v1/completions", json={"prompt": prompt, "max_tokens": 1})
    answer = seen.ask(prompt=prompt)
    assert answer.headers[REPLICA] == "emulated-1"
    assert answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert seen.ask(prompt=prompt, cache_salt="another").headers[REPLICA] == "emulated-0"


def test_a_disconnect_cancels_the_request_at_its_engine(seen: WithOracle) -> None:
    body = {"prompt": "go on", "max_tokens": 1500, "ignore_eos": True, "stream": True}
    aborted = seen.state(0)["aborted"]
    with raw_post(seen.oracle, "/v1/completions", body):
        seen.until(lambda: seen.state(0)["running"] == 1, "running")
    seen.until(lambda: seen.state(0)["running"] == 0, "cancelled")
    assert seen.state(0)["aborted"] == aborted + 1


@pytest.mark.parametrize(
    "body",
    [
        {"model": "other"},
        {"max_tokens": 0},
        {"max_tokens": 99_999},
        {"priority": 0.5},
        {"prompt": []},
        {"n": "many"},
    ],
)
def test_a_refusal_is_that_of_an_engine(seen: WithOracle, body: dict[str, object]) -> None:
    straight = seen.http.post(seen.url + "/v1/completions", json={"prompt": "a", **body})
    answer = seen.ask(**body)
    assert answer.status_code == straight.status_code >= 400
    assert answer.json() == straight.json()
    assert answer.headers[REPLICA].startswith("emulated-")
