"""The oracle's port: it follows the engines' true state and answers as the chosen engine does."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest
import uvloop

from router.app.emulated_fleet import EmulatedFleet
from tests.app.emulator.conftest import OPTIONS, Fleet, checked
from tests.app.emulator.test_server import raw_post
from tests.harness.ports import free_port

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
