"""A replica loses a request before any content: whether it is sent again, and how often.

`test_positions.py` has the moments; this table has the kinds of requests and settings.
"""

import asyncio

import pytest

from tests.harness.behaviours import (
    answer_then_fin,
    fin_after_request,
    json_ok,
    rst_after_request,
    rst_unread,
    sse_tokens,
    stream_then_rst,
)
from tests.harness.cases import Case
from tests.harness.messages import (
    SSE_HEAD,
    chat,
    chunk,
    completion,
    event,
    post_json,
    role,
    token,
)
from tests.harness.replica import Behaviour, ReplicaConnection
from tests.harness.running import scenario

TWO = (json_ok, json_ok)
STORED = {"model": "m", "input": "hello", "store": True}


def at_once(*events: bytes) -> Behaviour:
    """Stream these events, then reset."""
    go = asyncio.Event()
    go.set()
    return stream_then_rst(go, *events)


def serves_once(end: str) -> Behaviour:
    """Serve one request, and end the connection when the head of the next one has arrived."""

    async def behave(connection: ReplicaConnection) -> None:
        assert await connection.recv_request()
        await connection.send(completion())
        assert await connection.recv_head()
        if end == "rst":
            connection.rst()
        else:
            connection.fin()
            await connection.expect_close()

    return behave


def lost(attempts: int, **fields: object) -> Case:
    """A request that gets a 502, after this many attempts."""
    return Case(
        status=502,
        code="replica_reset",
        reason="replica_reset",
        attempts=attempts,
        **fields,  # type: ignore[arg-type]
    )


TABLE = {
    "reset everywhere": lost(2, replicas=(rst_after_request,) * 3, executed=2),
    "closed everywhere": lost(2, replicas=(fin_after_request,) * 3, executed=2),
    "reset everywhere, unread": lost(2, replicas=(rst_unread,) * 2, executed=0),
    "reset unread, once": Case(first=(rst_unread,), replicas=TWO, attempts=2, executed=1),
    "without retries": lost(
        1, first=(rst_after_request,), replicas=TWO, settings={"retry": {"attempts": 1}}
    ),
    # A request that leaves state behind is not sent again.
    **{
        f"POST {path}": lost(
            1, first=(rst_after_request,), replicas=TWO, asked=post_json(path, {}), executed=1
        )
        for path in ("/v1/files", "/v1/batches")
    },
    "stored response": lost(
        1,
        first=(rst_after_request,),
        replicas=TWO,
        asked=post_json("/v1/responses", STORED),
        executed=1,
    ),
    "stored response, streamed": lost(
        1,
        first=(at_once(event({"type": "response.created", "response": {"id": "resp_1"}})),),
        replicas=TWO,
        asked=post_json("/v1/responses", STORED | {"stream": True}),
        executed=1,
    ),
    "stream before content": Case(
        first=(at_once(b": ping\n\n", role()),),
        replicas=(sse_tokens(2), sse_tokens(2)),
        asked=chat(stream=True),
        events=4,
        without=(b"ping",),  # nothing of the first attempt is relayed, not even its role
        attempts=2,
    ),
    **{
        f"stream cut inside a chunk: {raw!r}": Case(
            replicas=(answer_then_fin(SSE_HEAD + chunk(role()) + chunk(token("a")) + raw),),
            asked=chat(stream=True),
            complete=False,
            code="replica_reset",
            without=(b"[DONE]",),
            reason="replica_reset",
        )
        for raw in (b"", b"40\r\ndata: {", b"4", b"0\r\n")
    },
    # A stale pooled connection is replaced silently.
    **{
        f"pooled connection, {end}": Case(
            first=(serves_once(end),), replicas=(json_ok,), times=2, attempts=(1, 2), sessions=2
        )
        for end in ("fin", "rst")
    },
}


@pytest.mark.parametrize("name", TABLE)
@scenario
async def test_whether_it_is_sent_again(name: str) -> None:
    await TABLE[name].check(name)
