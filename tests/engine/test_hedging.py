"""One engine's core stops in the middle of a prefill: the other engine's copy answers.

The stopped engine is a zombie: it takes requests, sends heads and says that it is healthy. When it
goes on, the request that lost is gone from it: the client's end of it closed while it stood still.
How soon is counted in tokens it still makes, not in seconds: the machine's load slows both alike.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from router.core.errors import Reason
from router.dispatch.driver.attempt_state import Kind
from tests.engine.loads import bodies, sse
from tests.engine.loads.load import CHAT
from tests.engine.machine.cores import stopped
from tests.engine.machine.favourite import preferring
from tests.engine.machine.fleet import CONTEXT_TOKENS, Engine, EngineState, Hedgerow
from tests.engine.machine.processes import eventually

Engines = tuple[Engine, Engine]

TOKENS = 400  # of the answer: seconds of an engine that nobody stops
PROMPT = CONTEXT_TOKENS - TOKENS - 100  # characters, of one token each
TOKENS_IN_A_SECOND = 120  # that the tiny model makes at most, of one request
WITHIN_S = 60.0
TRIES = 6  # to meet the middle of a prefill
DELAY_S = 0.5
HEDGING = {
    "policy": "fixed",
    "options": {"delay_s": DELAY_S},
    "budget": 1.0,  # a test sends few requests: each may pay for its own copy
    "utilisation": 1.0,  # ... and one long prompt is most of what such a small engine holds
}


@pytest.fixture
def hedging(engines: Engines, tmp_path: Path) -> Iterator[Hedgerow]:
    """A Hedgerow that asks the first engine, and half a second later the second."""
    with preferring(*engines, tmp_path, hedging=HEDGING) as router:
        yield router


def prompt(number: int) -> str:
    """Long, and different from its first character: nothing of it is cached."""
    words = f"{number} {time.monotonic_ns()} says "
    return (words * (PROMPT // len(words) + 1))[:PROMPT]


def text_of(answer: httpx.Response, stream: bool) -> str:
    assert answer.status_code == 200, answer.text
    if not stream:
        text: str = answer.json()["choices"][0]["message"]["content"]
        return text
    events = sse.events(answer.content)
    assert events[-1] == sse.DONE
    return "".join(map(sse.text_of, events))


def ask(url: str, body: dict[str, Any], stream: bool, urgency: str = "high") -> str:
    headers = {"x-priority": urgency}
    answer = httpx.post(
        f"{url}{CHAT}", json={**body, "stream": stream}, headers=headers, timeout=WITHIN_S
    )
    return text_of(answer, stream)


def prefill_s(engine: Engine) -> float:
    """How long a prompt of this length takes to its first token here, on the idle engine."""
    began = time.monotonic()
    ask(engine.url, bodies.chat(prompt(-1), 1), False)
    return time.monotonic() - began


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_the_copy_answers_while_the_first_engine_stands_still(
    engines: Engines, hedging: Hedgerow, stream: bool
) -> None:
    zombie, saviour = engines
    for engine in engines:
        prefill_s(engine)  # whatever a first prompt of that length costs once
    half_s = prefill_s(zombie) / 2
    for number in range(TRIES):
        zombie.wait_until_idle(WITHIN_S)
        saviour.wait_until_idle(WITHIN_S)
        before = zombie.state()
        body = bodies.chat(prompt(number), TOKENS)
        text = ""
        with ThreadPoolExecutor(1) as client:
            asked = client.submit(ask, hedging.url, body, stream)
            time.sleep(half_s)
            with stopped(zombie):
                if zombie.state().generated_tokens == before.generated_tokens:
                    try:
                        text = asked.result(WITHIN_S)
                    except (TimeoutError, httpx.TimeoutException):
                        why = httpx.get(f"{hedging.admin}/hedging").text
                        pytest.fail(f"no copy answered: {why}")
            continued = time.monotonic()
        if not text or not had_begun(zombie, before):
            continue  # it was stopped behind its first token, or before it took the request up
        eventually(lambda: zombie.state().is_idle, WITHIN_S, lambda: f"gone: {zombie.state()}")
        print(f"gone {time.monotonic() - continued:.2f} s after it went on")
        now = zombie.state()
        assert now.finished == before.finished + 1, "the loser ran to its natural end"
        assert now.generated_tokens - before.generated_tokens < TOKENS_IN_A_SECOND
        # With a salt of its own it finds nothing cached, as the copy did. A cached prompt is
        # computed in other pieces, and a sum in another order differs in its last bit.
        assert text == ask(saviour.url, {**body, "cache_salt": "again"}, stream)
        assert_logged(hedging, zombie, saviour)
        return
    pytest.fail(f"in {TRIES} tries the engine was never stopped in the middle of a prefill")


def had_begun(engine: Engine, before: EngineState) -> bool:
    """Whether the engine had taken the request up before it stood still: then it has counted its
    prompt, and says so with its next step. One that is told of its end first never counts it."""
    ask(engine.url, bodies.chat("a step more", 1), False)
    return engine.state().cache_queries - before.cache_queries > PROMPT


def assert_logged(router: Hedgerow, zombie: Engine, saviour: Engine) -> None:
    """The access log names the engine whose answer the client got, and what became of both."""

    def answered() -> list[dict[str, Any]]:
        return [record for record in router.records() if record.get("replica") == saviour.name]

    eventually(answered, WITHIN_S, lambda: f"logged: {router.records()}")
    record = answered()[-1]
    assert record["reason"] == Reason.OK
    assert [attempt[:3] for attempt in record["attempts"]] == [
        [zombie.name, Kind.PRIMARY, Reason.HEDGE_LOST],
        [saviour.name, Kind.HEDGE, Reason.OK],
    ]


def test_what_is_not_urgent_has_no_copy(engines: Engines, hedging: Hedgerow) -> None:
    """The control: the same engine stops, and a request of the class normal waits for it."""
    zombie, saviour = engines
    before = saviour.state().finished
    body = bodies.chat("there is time", 8)
    with ThreadPoolExecutor(1) as client:
        with stopped(zombie):
            asked = client.submit(ask, hedging.url, body, True, "normal")
            time.sleep(4 * DELAY_S)
            assert not asked.done()
        assert asked.result(WITHIN_S) == ask(saviour.url, body, True)
    # The one asked directly for comparison is all it got.
    assert saviour.state().finished - before == 1
