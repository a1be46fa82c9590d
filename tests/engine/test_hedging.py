"""One engine's core stops in the middle of a prefill: the other engine's copy answers.

The stopped engine accepts requests, sends heads and reports itself healthy. When it continues, the
losing request is gone from it, because the router has closed the connection in the meantime. The
delay is counted in tokens, not in seconds, because load on the machine slows the delay and the
tokens alike.
"""

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
from tests.engine.machine.fleet import CONTEXT_TOKENS, Engine, Engines, EngineState, Hedgerow
from tests.engine.machine.processes import eventually

TOKENS = 400  # length of the answer: seconds of a running engine
PROMPT = CONTEXT_TOKENS - TOKENS - 100  # characters, of one token each
TOKENS_IN_A_SECOND = 120  # maximum speed of the tiny model for one request
WITHIN_S = 60.0
TRIES = 6  # tries to stop the engine in the middle of a prefill
DELAY_S = 0.5
HEDGING = {
    "policy": "fixed",
    "options": {"delay_s": DELAY_S},
    "budget": 1.0,  # a test sends few requests, so each may pay for its own copy
    "utilisation": 1.0,  # one long prompt fills most of the KV cache of such a small engine
}


@pytest.fixture
def hedging(engines: Engines, tmp_path: Path) -> Iterator[Hedgerow]:
    """A Hedgerow that sends to the first engine, and a copy to the second after half a second."""
    with preferring(*engines, tmp_path, hedging=HEDGING) as router:
        yield router


def prompt(number: int) -> str:
    """A long prompt that differs from all others from its first character on: nothing of it is
    cached.
    """
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
    """Time to first token of a prompt of this length on the idle engine."""
    began = time.monotonic()
    ask(engine.url, bodies.chat(prompt(-1), 1), False)
    return time.monotonic() - began


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_the_copy_answers_while_the_first_engine_stands_still(
    engines: Engines, hedging: Hedgerow, stream: bool
) -> None:
    zombie, saviour = engines
    for engine in engines:
        prefill_s(engine)  # pay the one-time cost of a first prompt of this length
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
            continue  # the engine was stopped after its first token, or before it began
        eventually(lambda: zombie.state().is_idle, WITHIN_S, lambda: f"gone: {zombie.state()}")
        print(f"gone {time.monotonic() - continued:.2f} s after it went on")
        now = zombie.state()
        assert now.finished == before.finished + 1, "the loser ran to its natural end"
        assert now.generated_tokens - before.generated_tokens < TOKENS_IN_A_SECOND
        # With a new cache salt, the request finds nothing cached, as the copy did. A cached prompt
        # is computed in other pieces, and a different order of a sum changes its last bit.
        assert text == ask(saviour.url, {**body, "cache_salt": "again"}, stream)
        assert_logged(hedging, zombie, saviour)
        return
    pytest.fail(f"in {TRIES} tries the engine was never stopped in the middle of a prefill")


def had_begun(engine: Engine, before: EngineState) -> bool:
    """Whether the engine had started the request before it stopped.

    An engine that has started a request counts its prompt, and reports it with the next step. An
    engine that sees the abort first never counts the prompt.
    """
    ask(engine.url, bodies.chat("a step more", 1), False)
    return engine.state().cache_queries - before.cache_queries > PROMPT


def assert_logged(router: Hedgerow, zombie: Engine, saviour: Engine) -> None:
    """The access log names the engine that answered the client, and the result of both attempts."""

    def answered() -> list[dict[str, Any]]:
        return [record for record in router.records() if record.get("replica") == saviour.name]

    eventually(answered, WITHIN_S, lambda: f"logged: {router.records()}")
    record = answered()[-1]
    assert record["reason"] == Reason.OK
    assert [attempt[:3] for attempt in record["attempts"]] == [
        [zombie.name, Kind.PRIMARY, Reason.HEDGE_LOST],
        [saviour.name, Kind.HEDGE, Reason.OK],
    ]


def test_a_request_that_is_not_urgent_gets_no_copy(engines: Engines, hedging: Hedgerow) -> None:
    """The control: the same engine stops, and a request of class normal waits for it."""
    zombie, saviour = engines
    before = saviour.state().finished
    body = bodies.chat("there is time", 8)
    with ThreadPoolExecutor(1) as client:
        with stopped(zombie):
            asked = client.submit(ask, hedging.url, body, True, "normal")
            time.sleep(4 * DELAY_S)  # no event shows that no copy is sent
            assert not asked.done()
        assert asked.result(WITHIN_S) == ask(saviour.url, body, True)
    # The other engine got only the direct request for comparison.
    assert saviour.state().finished - before == 1


@pytest.mark.parametrize("urgency", ["critical", "high"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_urgent_requests_of_a_quiet_fleet_need_no_budget(
    engines: Engines, tmp_path: Path, stream: bool, urgency: str
) -> None:
    """Shipped settings of hedging and a fresh router: it knows no times, and its budget is empty.

    The engine stands still before the first request, so every request that reaches it needs a copy.
    """
    zombie, saviour = engines
    priority = {"ceiling": "critical"}
    with preferring(*engines, tmp_path, priority=priority) as router, stopped(zombie):
        for number in range(5):
            began = time.monotonic()
            assert ask(router.url, bodies.chat(f"quick {number}", 8), stream, urgency)
            print(f"{urgency}, stream={stream}: answered in {time.monotonic() - began:.2f} s")
        eventually(lambda: len(router.records()) >= 5, WITHIN_S, lambda: f"{router.records()}")
        records = [one for one in router.records() if one.get("replica")]
        assert {one["replica"] for one in records} == {saviour.name}
        copied = [one for one in records if [zombie.name, Kind.PRIMARY] == one["attempts"][0][:2]]
        assert copied, records
        page = httpx.get(f"{router.admin}/hedging").json()["counts"]
        print(page)
        assert page["idle"]["fired"] == page["fired"] == page["won"] == len(copied)
