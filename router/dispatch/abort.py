"""Having an engine stop a request where closing its connection is not enough (`Engine.abort`).

Such an engine takes a name for a request and stops it when that is posted. It may forget the name
when the connection closes, so that an abort after the closing finds nothing. Hence the order here:
nothing more is read, the abort is posted, and the connection closes when that is answered, or after
a second. For the router the attempt is over before any of it.

An engine may abort whatever *begins* with a name, also when a connection closes by itself. So names
have one length, nobody can guess them (`ids.py`), and a client's own name never reaches the engine:
it could be the beginning of another request's, or of all.

Must never: delay what is to be cancelled when too many are at once, or make a request fail.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from router.config.model import Aborts
from router.core.errors import Reason
from router.core.unreadable import NOT_JSON
from router.dispatch.body_edit import append
from router.fleet.ask import Asker, NoAnswer
from router.fleet.engines.common.descriptor import Abort
from router.fleet.engines.common.registry import ABORT_PATHS
from router.fleet.replica import Replica
from router.intake.fields import Fields, Parameters
from router.intake.values import is_given, opening_of
from router.observe.events import log_event
from router.wire.replica import Owner, ReplicaConnection

MOST: Final = 128  # under way at once, each over a connection of its own
_DECODED: Final = 64 * 1024  # bytes of `parameters`; longer ones may have a name
_decode: Final = msgspec.json.Decoder(Parameters).decode


def is_nameable(path: bytes, fields: Fields) -> bool:
    """Whether a request can be given a name: it is one generation, on a path where some engine
    knows names."""
    if path not in ABORT_PATHS:
        return False
    if fields.n is not None and fields.n != 1:
        return False
    prompt = fields.prompt
    return prompt is None or opening_of(prompt) == 0x22  # a single text


def unnamed_parameters(raw: msgspec.Raw) -> bytes | None:
    """A body's `parameters`, which /vertex_generate takes for the request itself, as a member in
    which the client's `rid` has no value. `None`: they have none, or are no object."""
    if len(raw) <= _DECODED and not _has_rid(raw):
        return None
    edited = append([bytes(raw)], b'"rid":null')
    return None if edited is None else b'"parameters":' + b"".join(edited)


def _has_rid(raw: msgspec.Raw) -> bool:
    try:
        return is_given(_decode(raw).rid)
    except NOT_JSON:
        return False  # no object, or not JSON: the engine refuses it, or reads no name in it


class _Nobody(Owner):
    """Owns a connection whose answer is of no interest any more."""

    def on_data(self, conn: ReplicaConnection) -> None:
        conn.reader.parts.clear()

    def on_sent(self) -> None:
        pass

    def on_lost(self, conn: ReplicaConnection, reason: Reason, detail: str) -> None:
        pass


_NOBODY: Final = _Nobody()


class Aborter:
    """Names attempts, and aborts them by their names. `close` it after the last one."""

    def __init__(self, rules: Aborts, asker: Asker) -> None:
        self.asker = asker
        self.rules = rules
        self.told = 0  # engines that were told
        self.failed = 0  # ... and did not take it, or did not answer in time
        self.skipped = 0  # too many at once: the connection was closed, no more
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> int:
        return len(self._tasks)

    def aborts(self, replica: Replica) -> bool:
        """Whether attempts at this replica are to have names."""
        return replica.descriptor.abort is not None and self.rules.enabled

    def abort(
        self,
        replica: Replica,
        rule: Abort,
        rid: bytes,
        conn: ReplicaConnection,
        authorization: bytes | None,
    ) -> None:
        """Stop the attempt of this name, and close its connection. Returns at once.

        `rule`: the engine's when it was sent. `authorization`: the line that the request was sent
        with, as far as it is its client's.
        """
        if len(self._tasks) >= MOST:
            self.skipped += 1
            conn.cancel()
            return
        conn.owner = _NOBODY
        task = asyncio.get_running_loop().create_task(
            self._abort(replica, rule, rid, conn, authorization)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _abort(
        self,
        replica: Replica,
        rule: Abort,
        rid: bytes,
        conn: ReplicaConnection,
        authorization: bytes | None,
    ) -> None:
        problem = ""
        try:
            status = await self.asker.post(
                replica,
                rule.path,
                b"{%b}" % rule.member(rid),
                self.rules.timeout_s,
                authorization,
            )
            if status != 200:
                problem = str(status)
        except NoAnswer as err:
            problem = err.problem
        finally:
            if conn.owner is _NOBODY:
                conn.cancel()
        if not problem:
            self.told += 1
            return
        self.failed += 1
        log_event(
            logging.WARNING,
            "an engine did not take an abort",
            key=replica.id,
            replica=replica.id,
            problem=problem,
        )

    async def close(self) -> None:
        """Wait for those under way, each of which has its time; then close what they use."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.asker.close()
