"""Each persona read by the router's own readers: it is detected, and its load is read correctly.

Personas and readers were written from the engines' sources, not from each other.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from router.fleet.engines.common.base import Source
from router.fleet.engines.common.detect import QUESTIONS, detect
from router.fleet.engines.common.registry import ENGINES
from router.lab.emulator.settings import PERSONAS
from tests.app.emulator.conftest import Fleet, started
from tests.app.emulator.test_server import LONG, raw_post


@pytest.fixture(scope="module", params=PERSONAS)
def _fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    yield from started(f"--persona={request.param}")


def persona(fleet: Fleet) -> str:
    name: str = fleet.state()["persona"]
    return name


def answers(fleet: Fleet) -> dict[str, Any]:
    found = {}
    for path in QUESTIONS:
        answer = fleet.get(path)
        if answer.status_code == 200 and answer.headers["content-type"] == "application/json":
            found[path] = answer.json()
    return found


def test_it_is_recognised_by_its_metrics_or_by_what_else_it_says(fleet: Fleet) -> None:
    name = persona(fleet)
    told = [
        fleet.get(source.path).content
        for source in ENGINES[name].sources
        if type(source).__name__ == "TextSource"
    ]
    assert detect(metrics=told[0]) == name
    assert detect(answers=answers(fleet)) in (name, None)
    rows = fleet.get("/v1/models").json()["data"]
    assert detect(owned_by=[row["owned_by"] for row in rows], answers=answers(fleet)) == name


def test_its_load_is_read_right_wherever_it_is_told(fleet: Fleet) -> None:
    engine = ENGINES[persona(fleet)]
    for number in range(2):  # a second request, because gauges are refreshed at its end
        body = {"prompt": "a", "max_tokens": 300 * number + 1, "ignore_eos": True}
        fleet.post("/v1/completions", json=body)
    with ExitStack() as opened:
        for _ in range(3):
            opened.enter_context(raw_post(fleet.url, "/v1/completions", LONG))

        def is_full() -> bool:
            state = fleet.state()
            return (state["running"], state["waiting"]) == (2, 1)

        fleet.until(is_full, "two run and one waits")
        fleet.faults(freeze=True)
        state = fleet.state()
        for source in engine.sources:
            _check(fleet, engine.name, source, state)
        fleet.faults()


def _check(fleet: Fleet, name: str, source: Source, state: dict[str, Any]) -> None:
    odd: set[str] = set()
    signals = source.parse(fleet.get(source.path).content, odd=odd)
    assert signals is not None, source.path
    assert not odd
    if name == "trtllm" and source.path.startswith("/prometheus"):
        # The persona's gauges date from the end of the newest request, when no other request was
        # running.
        assert (signals.running, signals.waiting) == (0, 0)
    else:
        assert signals.running == state["running"], source.path
        assert signals.waiting in (state["waiting"], None), source.path
    if signals.kv_tokens is not None:
        assert signals.kv_tokens == state["kv_blocks"] * state["kv_block_size"], source.path
    if signals.block_tokens is not None:
        assert signals.block_tokens == state["kv_block_size"]
    if signals.slots is not None:
        assert signals.slots == state["max_num_seqs"]
    if signals.cache_queries is not None and name != "trtllm":
        assert signals.cache_queries == state["prefix_cache_queries"]
        assert signals.cache_hits == state["prefix_cache_hits"]
    if signals.generated_tokens is not None:
        assert signals.generated_tokens == state["generation_tokens"]


def test_its_facts_are_read_right(fleet: Fleet) -> None:
    engine, state = ENGINES[persona(fleet)], fleet.state()
    if engine.facts is None:
        assert engine.name in ("vllm", "trtllm")
        return
    facts = engine.facts.parse(fleet.get(engine.facts.path).content)
    assert facts.slots in (state["max_num_seqs"], None)
    assert facts.context_tokens in (2048, None)
    assert facts != type(facts)()


def test_its_health_is_read_where_the_router_looks(fleet: Fleet) -> None:
    check = ENGINES[persona(fleet)].health[0]
    assert fleet.get(check.path).status_code == 200
    fleet.faults(health=503)
    status = fleet.get(check.path).status_code
    assert status == 503
    assert check.decides(status)
