"""A replica loses a request before any content: whether it is sent again, and how often.

`test_positions.py` has the moments; this table has the kinds of requests and settings.
"""

import asyncio

import pytest

from tests.harness import kit

TWO = (kit.json_ok, kit.json_ok)
STORED = {"model": "m", "input": "hello", "store": True}


def at_once(*events: bytes) -> kit.Behaviour:
    """Stream these events, then reset."""
    go = asyncio.Event()
    go.set()
    return kit.stream_then_rst(go, *events)


def serves_once(end: str) -> kit.Behaviour:
    """Serve one request, and end the connection when the head of the next one has arrived."""

    async def behave(connection: kit.ReplicaConnection) -> None:
        assert await connection.recv_request()
        await connection.send(kit.completion())
        assert await connection.recv_head()
        if end == "rst":
            connection.rst()
        else:
            connection.fin()
            await connection.expect_close()

    return behave


def lost(attempts: int, **fields: object) -> kit.Case:
    """A request that gets a 502, after this many attempts."""
    return kit.Case(
        status=502,
        code="replica_reset",
        reason="replica_reset",
        attempts=attempts,
        **fields,  # type: ignore[arg-type]
    )


TABLE = {
    "reset everywhere": lost(2, replicas=(kit.rst_after_request,) * 3, executed=2),
    "closed everywhere": lost(2, replicas=(kit.fin_after_request,) * 3, executed=2),
    "reset everywhere, unread": lost(2, replicas=(kit.rst_unread,) * 2, executed=0),
    "reset unread, once": kit.Case(first=(kit.rst_unread,), replicas=TWO, attempts=2, executed=1),
    "without retries": lost(
        1, first=(kit.rst_after_request,), replicas=TWO, settings={"retry": {"attempts": 1}}
    ),
    # A request that leaves state behind is not sent again.
    **{
        f"POST {path}": lost(
            1,
            first=(kit.rst_after_request,),
            replicas=TWO,
            asked=kit.post_json(path, {}),
            executed=1,
        )
        for path in ("/v1/files", "/v1/batches")
    },
    "stored response": lost(
        1,
        first=(kit.rst_after_request,),
        replicas=TWO,
        asked=kit.post_json("/v1/responses", STORED),
        executed=1,
    ),
    "stored response, streamed": lost(
        1,
        first=(at_once(kit.event({"type": "response.created", "response": {"id": "resp_1"}})),),
        replicas=TWO,
        asked=kit.post_json("/v1/responses", STORED | {"stream": True}),
        executed=1,
    ),
    "stream before content": kit.Case(
        first=(at_once(b": ping\n\n", kit.role()),),
        replicas=(kit.sse_tokens(2), kit.sse_tokens(2)),
        asked=kit.chat(stream=True),
        events=4,
        without=(b"ping",),  # nothing of the first attempt is relayed, not even its role
        attempts=2,
    ),
    **{
        f"stream cut inside a chunk: {raw!r}": kit.Case(
            replicas=(
                kit.answer_then_fin(
                    kit.SSE_HEAD + kit.chunk(kit.role()) + kit.chunk(kit.token("a")) + raw
                ),
            ),
            asked=kit.chat(stream=True),
            complete=False,
            code="replica_reset",
            without=(b"[DONE]",),
            reason="replica_reset",
        )
        for raw in (b"", b"40\r\ndata: {", b"4", b"0\r\n")
    },
    # A stale pooled connection is replaced silently.
    **{
        f"pooled connection, {end}": kit.Case(
            first=(serves_once(end),), replicas=(kit.json_ok,), times=2, attempts=(1, 2), sessions=2
        )
        for end in ("fin", "rst")
    },
}


@pytest.mark.parametrize("name", TABLE)
@kit.scenario
async def test_whether_it_is_sent_again(name: str) -> None:
    await TABLE[name].check(name)
