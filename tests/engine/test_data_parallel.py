"""One real engine with two data-parallel ranks behind one address: each rank is a replica.

What a rank has done is read from the engine's own metrics, by their label `engine`. The engine has
an API server for each rank, which is vLLM's default, so its metrics are those of several processes.
"""

import asyncio
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine.loads import bodies
from tests.engine.machine import environment
from tests.engine.machine.exact import expected_hits, hits_of, knowing
from tests.engine.machine.fleet import (
    BLOCK_TOKENS,
    KV_BLOCKS,
    Engine,
    Hedgerow,
    configured,
    running,
)
from tests.engine.machine.processes import eventually

NAME = "engine-ranks"
IDS = [NAME, f"{NAME}@1"]  # of the replicas, by rank
HEADER = "x-data-parallel-rank"
TIMEOUT_S = 60.0
FOUND_WITHIN_S, LOGGED_WITHIN_S, IDLE_WITHIN_S = 30.0, 30.0, 60.0
HELD, HELD_TOKENS = 3, 2000  # streams that keep a rank busy; together they fit into its KV cache
# Prompts that are sent twice. All of them fit into the KV cache of one rank.
PROMPTS, PROMPT_TOKENS = 4, 1000


@pytest.fixture(scope="module")
def ranked(logs: Path) -> Iterator[Engine]:
    """The engine with two ranks. The first test finds it as it is after its start."""
    engine = Engine(NAME, environment.ensure(), logs, ranks=len(IDS))
    with running(engine):
        yield engine


@contextmanager
def routed(engine: Engine, folder: Path, policy: str = "kv_aware") -> Iterator[Hedgerow]:
    """A router that got only the engine's address, and has found the ranks."""
    config = {
        "replicas": [{"url": engine.url, "id": engine.name}],
        "routing": {"policy": policy},
    }
    engine.wait_until_idle(IDLE_WITHIN_S)
    with configured(config, folder) as router:
        eventually(lambda: [*replicas(router)] == IDS, FOUND_WITHIN_S, "both ranks are found")
        yield router


def replicas(router: Hedgerow) -> dict[str, dict[str, Any]]:
    """GET /replicas, by ID."""
    found = httpx.get(f"{router.admin}/replicas", timeout=TIMEOUT_S).json()
    return {replica["id"]: replica for replica in found}


def chosen(router: Hedgerow, number: int) -> list[str]:
    """The replicas to which the router has sent its requests. `number`: of requests so far."""
    eventually(lambda: len(router.records()) == number, LOGGED_WITHIN_S, "requests are logged")
    return [record["replica"] for record in router.records()]


def finished(engine: Engine) -> list[int]:
    """The number of requests that each rank has finished."""
    return [engine.state(rank).finished for rank in range(engine.ranks)]


def ask(url: str, path: str, body: dict[str, Any], headers: dict[str, str]) -> None:
    answer = httpx.post(url + path, json=body, headers=headers, timeout=TIMEOUT_S)
    assert answer.status_code == 200, answer.text


def prompt(seed: str) -> str:
    """Text of `PROMPT_TOKENS` tokens: the model has a token for each character."""
    return "".join(random.Random(seed).choices("abcdefghijklmnop", k=PROMPT_TOKENS))


def test_the_ranks_of_an_engine_without_any_request_are_found(
    ranked: Engine, tmp_path: Path
) -> None:
    with routed(ranked, tmp_path) as router:
        found = [replicas(router)[each] for each in IDS]
    assert finished(ranked) == [0, 0]
    assert [each["data_parallel_rank"] for each in found] == [0, 1]
    assert [each["kv_tokens"] for each in found] == [KV_BLOCKS * BLOCK_TOKENS] * 2
    assert [each["kv_usage"] for each in found] == [0.0, 0.0]
    assert [each["load"] for each in found] == [0, 0]


def test_a_request_runs_at_the_rank_that_the_router_chose(ranked: Engine, tmp_path: Path) -> None:
    requests = {
        "/v1/completions": bodies.completion("hello", 4),
        "/v1/chat/completions": bodies.chat("hello", 4),
        "/v1/messages": bodies.chat("hello", 4),
    }
    done = finished(ranked)
    with routed(ranked, tmp_path, "round_robin") as router:
        for turn, (path, body) in enumerate(requests.items(), 1):
            for _ in IDS:
                # The client's own choice must not reach the engine.
                ask(router.url, path, body, {HEADER: "0"})
            at = chosen(router, turn * len(IDS))[-len(IDS) :]
            assert sorted(at) == IDS
            done = [was + 1 for was in done]
            assert finished(ranked) == done, path


def test_the_load_of_each_rank_is_read(ranked: Engine, tmp_path: Path) -> None:
    """Streams of another client fill one rank; the router's own requests go to the other one."""
    body = {**bodies.completion("held", HELD_TOKENS), "stream": True}
    with (
        routed(ranked, tmp_path) as router,
        httpx.Client(base_url=ranked.url, headers={HEADER: "1"}, timeout=TIMEOUT_S) as other,
        ExitStack() as held,
    ):
        for _ in range(HELD):
            held.enter_context(other.stream("POST", "/v1/completions", json=body))

        def loads() -> list[int]:
            return [replicas(router)[each]["load"] for each in IDS]

        eventually(lambda: loads() == [0, HELD], FOUND_WITHIN_S, lambda: f"loads: {loads()}")
        for number in range(4):
            ask(router.url, "/v1/completions", bodies.completion(f"{number} hello", 4), {})
        assert loads()[1] == HELD, "the streams were running all the time"
        assert chosen(router, 4) == [IDS[0]] * 4


def test_a_prompt_returns_to_the_rank_that_has_its_prefix(ranked: Engine, tmp_path: Path) -> None:
    prompts = [prompt(f"affinity {number}") for number in range(PROMPTS)]

    def hits() -> list[int]:
        return [ranked.state(rank).cache_hits for rank in range(ranked.ranks)]

    with routed(ranked, tmp_path) as router, ThreadPoolExecutor(PROMPTS) as threads:

        def send(text: str) -> None:
            ask(router.url, "/v1/completions", bodies.completion(text, 4), {})

        before = hits()
        list(threads.map(send, prompts))
        first = chosen(router, PROMPTS)
        assert {*first} == {*IDS}, "the prompts are spread over both ranks"
        assert hits() == before
        for text in prompts:
            send(text)
        again = chosen(router, 2 * PROMPTS)[PROMPTS:]
    found = [after - was for after, was in zip(hits(), before, strict=True)]
    full = (PROMPT_TOKENS - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    assert sorted(again) == sorted(first)
    assert found == [again.count(each) * full for each in IDS]


def test_kv_events_are_those_of_the_rank(ranked: Engine) -> None:
    async def work() -> None:
        async with knowing(ranked) as app:
            assert [*app.parts.fleet.replicas] == IDS
            for rank in range(ranked.ranks):
                text = prompt(f"events {rank}")
                asked = text + "x" * BLOCK_TOKENS
                assert await hits_of(ranked, text, rank) == 0
                async with asyncio.timeout(FOUND_WITHIN_S):
                    while not await expected_hits(app, ranked, asked, rank):
                        await asyncio.sleep(0.02)
                expected = [await expected_hits(app, ranked, asked, each) for each in (0, 1)]
                full = PROMPT_TOKENS // BLOCK_TOKENS * BLOCK_TOKENS
                assert expected == [full * (each == rank) for each in (0, 1)]
                for each in (0, 1):
                    assert await hits_of(ranked, asked, each) == expected[each]

    asyncio.run(work())
