"""How much code and how many objects one plain streamed chat needs.

Every reader of the code and every processor cache pays for this amount. The limits are the present
figures: they may only be lowered.
"""

import asyncio
import gc
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from router.dispatch import exchange
from tests.harness.behaviours import until_told
from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, role, token
from tests.harness.replica import ReplicaConnection
from tests.harness.running import running, scenario

ROOT: Final = Path(__file__).parents[3]
QUIET: Final = "each probe and poll would count its own files and objects"
IS_COMPILED: Final = not exchange.__file__.endswith(".py")

MOST_FILES: Final = 104
MOST_OBJECTS: Final = 16
MOST_FIELDS: Final = 288  # compiled; three fewer uncompiled


class Streams:
    """A replica that streams a chat in two parts; the second part waits for `go`."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(SSE_HEAD, chunk(role()), chunk(token()), chunk(token()))
            await until_told(connection, self.go)
            await connection.send(chunk(token()), chunk(DONE), LAST_CHUNK)


def own_objects() -> dict[int, Any]:
    own = ("router.", "policies.")
    return {id(one): one for one in gc.get_objects() if str(type(one).__module__).startswith(own)}


def fields_of(kind: type) -> set[str]:
    """The names of the fields of a class's objects."""
    found: set[str] = set()
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        found.update([slots] if isinstance(slots, str) else slots)
        found.update(getattr(base, "__mypyc_attrs__", ()))
    return found


@scenario
async def test_objects_that_live_as_long_as_a_chat() -> None:
    replica = Streams()
    async with running(replica, quiet_control_plane=QUIET) as router:
        client = await router.client()
        for _ in range(2):  # The first chat opens the connections and makes what is kept.
            replica.go.clear()
            gc.collect()
            before = own_objects()
            start = len(client.received)
            await client.send(chat(stream=True))
            while client.received.count(b"data:", start) < 3:
                assert await client.fill()
            gc.collect()
            found = [one for key, one in own_objects().items() if key not in before]
            kinds = sorted(type(one).__name__ for one in found)
            fields = sum(len(fields_of(type(one))) for one in found)
            replica.go.set()
            await client.recv_response()
        assert len(kinds) <= MOST_OBJECTS, kinds
        assert fields <= MOST_FIELDS, {type(o).__name__: len(fields_of(type(o))) for o in found}


@pytest.mark.skipif(IS_COMPILED, reason="compiled functions cannot be traced")
@scenario
async def test_files_that_a_chat_runs() -> None:
    files: set[str] = set()

    def called(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    replica = Streams()
    replica.go.set()
    async with running(replica, quiet_control_plane=QUIET) as router:
        client = await router.client()
        await client.send(chat(stream=True))
        await client.recv_response()
        sys.setprofile(called)
        try:
            await client.send(chat(stream=True))
            await client.recv_response()
            await router.log(2)
        finally:
            sys.setprofile(None)
    own = sorted(
        str(Path(name).relative_to(ROOT))
        for name in files
        if name.startswith((f"{ROOT}/router/", f"{ROOT}/policies/"))
    )
    assert len(own) <= MOST_FILES, own
