"""Streams through Hedgerow, with the SDK and raw: identical to the engine's own."""

import asyncio
import itertools
from typing import Any

import httpx
import openai
import pytest

from tests.engine.loads import bodies, sse
from tests.engine.machine.fleet import MODEL, Engine, Engines, Hedgerow

TOKENS = 40
TIMEOUT_S = 60.0


def stream_bytes(url: str, path: str, body: dict[str, Any]) -> bytes:
    """The whole body of an answer that must be a stream."""
    with httpx.stream("POST", f"{url}{path}", json=body, timeout=TIMEOUT_S) as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.status_code == 200, raw
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "content-length" not in answer.headers
    return raw


def direct_text(engine: Engine, path: str, body: dict[str, Any]) -> str:
    return "".join(map(sse.text_of, sse.events(stream_bytes(engine.url, path, body))))


def test_both_engines_return_the_same_text(engines: Engines) -> None:
    """The precondition of every comparison in this folder."""
    body = bodies.chat("who are you", TOKENS, stream=True)
    one, other = (direct_text(engine, "/v1/chat/completions", body) for engine in engines)
    assert one == other
    assert len(one) == TOKENS


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", bodies.chat("raw chat", TOKENS, stream=True)),
        (
            "/v1/chat/completions",
            bodies.chat("usage", TOKENS, stream=True, stream_options={"include_usage": True}),
        ),
        (
            "/v1/chat/completions",
            bodies.chat("two choices", TOKENS, stream=True, n=2) | {"temperature": 1, "seed": 7},
        ),
        ("/v1/completions", bodies.completion("raw completion", TOKENS, stream=True)),
    ],
    ids=["chat", "chat with usage", "chat with two choices", "completion"],
)
def test_streams_equal_those_of_the_engine(
    engines: Engines, hedgerow: Hedgerow, path: str, body: dict[str, Any]
) -> None:
    direct = sse.events(stream_bytes(engines[0].url, path, body))
    relayed = sse.events(stream_bytes(hedgerow.url, path, body))
    assert relayed[-1] == sse.DONE
    assert bodies.gist(relayed) == bodies.gist(direct)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/v1/messages",
            {"messages": [{"role": "user", "content": "messages"}], **bodies.common(8)},
        ),
        (
            "/v1/responses",
            {"model": MODEL, "input": "responses", "max_output_tokens": 8, "temperature": 0},
        ),
    ],
    ids=["messages", "responses"],
)
def test_other_dialects_stream_too(
    engines: Engines, hedgerow: Hedgerow, path: str, body: dict[str, Any]
) -> None:
    """Events of these APIs have names; the order of the names is part of the protocol."""

    def names(url: str) -> list[bytes]:
        raw = stream_bytes(url, path, {**body, "stream": True})
        sse.events(raw)
        named = [line for line in raw.split(b"\n") if line.startswith(b"event: ")]
        # The number of deltas depends on the engine's load.
        return [name for name, _ in itertools.groupby(named)]

    relayed = names(hedgerow.url)
    assert relayed == names(engines[0].url)
    assert len(relayed) > 4


def test_async_sdk_streams_side_by_side(engines: Engines, hedgerow: Hedgerow) -> None:
    """More streams than one engine has slots, all at once: all complete, and both engines
    are used.
    """
    clients = 20
    before = [engine.state().finished for engine in engines]

    async def one(sdk: openai.AsyncOpenAI, text: str) -> str:
        stream = await sdk.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": text}],
            max_tokens=TOKENS,
            temperature=0,
            stream=True,
            extra_body=bodies.ENGINE_FIELDS,
        )
        async with stream:
            pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
        return "".join(pieces)

    async def all_of_them() -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=f"{hedgerow.url}/v1", api_key="none", max_retries=0, timeout=TIMEOUT_S
        ) as sdk:
            return await asyncio.gather(*(one(sdk, f"client {n}") for n in range(clients)))

    texts = asyncio.run(all_of_them())
    assert [len(text) for text in texts] == [TOKENS] * clients
    served = [
        engine.state().finished - count for engine, count in zip(engines, before, strict=True)
    ]
    assert sum(served) == clients
    assert min(served) > 0
