"""Makes an engine stop a request when closing its connection is not enough (`Engine.abort`).

An engine with an abort rule accepts a name for a request, and stops the request when an abort with
that name is posted. The engine may forget the name when the connection closes; then an abort has no
effect. So the router stops reading and posts the abort first. It closes the connection when the
engine has answered, or after `timeout_s` (default 1 s). The client's request does not wait for the
abort.

An engine may abort every request whose name *begins* with the given name. So all names have the
same length and cannot be guessed (`ids.py`). A name chosen by a client never reaches the engine,
because it could be a prefix of other names.

Must never: delay a cancellation when too many aborts are running, or make a request fail.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from router.config.model import Aborts
from router.core.errors import Reason
from router.core.unreadable import NOT_JSON
from router.dispatch.attempts.body_edit import append
from router.fleet.engines.common.descriptor import Abort
from router.fleet.engines.common.registry import ABORT_PATHS
from router.fleet.monitor.ask import Asker, NoAnswer
from router.fleet.replica import Replica
from router.intake.fields import Fields
from router.intake.shapes import Parameters
from router.intake.values import is_given, opening_of
from router.observe.events import log_event
from router.wire.replica import Owner, ReplicaConnection

MOST: Final = 128  # Maximum number of aborts that run at once; each has its own connection.
# Maximum bytes of a body's `parameters` that are searched for a `rid`, the client's own name of the
# request. A longer value is treated as if it contained a `rid`.
_DECODED: Final = 64 * 1024
_decode: Final = msgspec.json.Decoder(Parameters).decode


def is_nameable(path: bytes, fields: Fields) -> bool:
    """Whether an engine can get a name for a request, by which the request can be aborted.

    The path must allow names, and the request must ask for one answer to one prompt.
    """
    if path not in ABORT_PATHS:
        return False
    if fields.n is not None and fields.n != 1:
        return False
    prompt = fields.prompt
    return prompt is None or opening_of(prompt) == 0x22  # The prompt is one JSON string.


def unnamed_parameters(raw: msgspec.Raw) -> bytes | None:
    """Return a body's `parameters` as a member in which the client's `rid` is null.

    The engine's /vertex_generate reads the members of `parameters` as fields of the request, so it
    would use the client's `rid` as the name. Returns `None` if `parameters` has no `rid` or is not
    an object.
    """
    if len(raw) <= _DECODED and not _has_rid(raw):
        return None
    edited = append([bytes(raw)], b'"rid":null')
    return None if edited is None else b'"parameters":' + b"".join(edited)


def _has_rid(raw: msgspec.Raw) -> bool:
    try:
        return is_given(_decode(raw).rid)
    except NOT_JSON:
        return False  # `parameters` is not a JSON object, so the engine finds no name in it.


class _Nobody(Owner):
    """Owns a connection whose response is discarded. It never waits for a connection."""

    def on_connected(self, conn: ReplicaConnection) -> None: ...

    def on_connect_failed(self, reason: Reason, detail: str) -> None: ...

    def on_data(self, conn: ReplicaConnection) -> None:
        conn.reader.parts.clear()

    def on_sent(self) -> None:
        pass

    def on_lost(self, conn: ReplicaConnection, reason: Reason, detail: str) -> None:
        pass


_NOBODY: Final = _Nobody()


class Aborter:
    """Aborts attempts at engines, by the attempts' names. Call `close` after the last abort."""

    def __init__(self, rules: Aborts, asker: Asker) -> None:
        self._asker = asker
        self.rules = rules  # A reload replaces them.
        self.accepted = 0  # Number of aborts that engines accepted.
        self.failed = 0  # Number of aborts that engines rejected or did not answer in time.
        # Number of attempts not aborted because `MOST` aborts were running; only their connection
        # was closed.
        self.skipped = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> int:
        return len(self._tasks)

    def aborts(self, replica: Replica) -> bool:
        """Whether attempts at this replica get names, by which its engine can abort them."""
        return replica.descriptor.abort is not None and self.rules.enabled

    def abort(
        self,
        replica: Replica,
        rule: Abort,
        rid: bytes,
        conn: ReplicaConnection,
        authorization: bytes | None,
    ) -> None:
        """Abort the attempt with the name `rid`, and close its connection. Returns at once.

        `rule`: the engine's abort rule when the attempt was sent. `authorization`: the header line
        that the attempt was sent with, if that line is the client's own.
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
            status = await self._asker.post(
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
            self.accepted += 1
            return
        self.failed += 1
        log_event(
            logging.WARNING,
            "an engine did not accept an abort",
            key=replica.id,
            replica=replica.id,
            problem=problem,
        )

    async def close(self) -> None:
        """Wait for the running aborts, each of which has a timeout; then close their
        connections."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._asker.close()
