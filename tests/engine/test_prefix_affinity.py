"""Conversations of several turns over two engines: each turn goes where its history is cached.

Cached tokens are counted by the engines themselves. The number of conversations is odd, so that
round robin changes the engine with every turn, as it does in production.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.engine.loads import bodies
from tests.engine.machine.fleet import BLOCK_TOKENS, MODEL, Engines, Hedgerow, running

CONVERSATIONS, TURNS = 5, 4
SAID = 540  # characters (tokens) of a user's message: more than one block of the index
TIMEOUT_S = 60.0


@contextmanager
def routed_by(policy: str, engines: Engines, folder: Path) -> Iterator[Hedgerow]:
    urls = [engine.url for engine in engines]
    router = Hedgerow(urls, folder / f"{policy}.log", "--policy", policy)
    with running(router):
        yield router


def cache_hits(engines: Engines) -> int:
    return sum(engine.state().cache_hits for engine in engines)


def converse(router: Hedgerow, salt: str) -> int:
    """Continue every conversation for `TURNS` turns; return the tokens that could have been cached.

    These are the full blocks of a conversation without its last message.
    """
    histories: list[list[dict[str, str]]] = [[] for _ in range(CONVERSATIONS)]
    past = [0] * CONVERSATIONS
    possible = 0
    with httpx.Client(base_url=router.url, timeout=TIMEOUT_S) as http:
        for turn in range(TURNS):
            for number, history in enumerate(histories):
                words = f"{salt} {number} turn {turn} "
                history.append({"role": "user", "content": words.ljust(SAID, "abcdefgh"[turn])})
                body = {"messages": history, **bodies.common(16)}
                answer = http.post("/v1/chat/completions", json=body)
                assert answer.status_code == 200, answer.text
                said = answer.json()
                history.append(
                    {"role": "assistant", "content": said["choices"][0]["message"]["content"]}
                )
                possible += past[number] // BLOCK_TOKENS * BLOCK_TOKENS
                past[number] = said["usage"]["prompt_tokens"]
    return possible


def test_affinity_keeps_conversations_at_the_replica_with_their_prefix(
    engines: Engines, tmp_path: Path
) -> None:
    found: dict[str, float] = {}
    for policy in ("round_robin", "kv_aware"):
        before = cache_hits(engines)
        with routed_by(policy, engines, tmp_path) as router:
            possible = converse(router, policy)
        found[policy] = (cache_hits(engines) - before) / possible
    print(f"cached share of what could be: {found}")
    assert found["kv_aware"] >= 0.9
    assert found["kv_aware"] >= 1.5 * found["round_robin"]


def test_one_system_prompt_does_not_fill_one_engine(engines: Engines, tmp_path: Path) -> None:
    """Concurrent requests that share only a long beginning."""
    system = {"role": "system", "content": "instructions ".ljust(1000, "s")}
    before = [engine.state().cache_queries for engine in engines]
    with (
        routed_by("kv_aware", engines, tmp_path) as router,
        httpx.Client(base_url=router.url, timeout=TIMEOUT_S) as http,
    ):
        streams = []
        for number in range(48):
            user = {"role": "user", "content": f"question {number} ".ljust(400, "q")}
            body = {"messages": [system, user], **bodies.common(60), "stream": True}
            request = http.build_request("POST", "/v1/chat/completions", json=body)
            streams.append(http.send(request, stream=True))
        for stream in streams:
            stream.read()
            assert stream.status_code == 200
    asked = [
        engine.state().cache_queries - was for engine, was in zip(engines, before, strict=True)
    ]
    assert 2 * max(asked) / sum(asked) <= 1.5, f"prompt tokens by engine: {asked} ({MODEL})"
