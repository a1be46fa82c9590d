"""The access log: one JSON line per request, encoded at once and written in batches by a thread.

`write` costs one C encoder call into a buffer that is handed to a `Sink` every `flush_s` seconds or
64 KiB, whichever comes first. The timer is armed only while lines wait: an idle router has none.
While the sink is slow, blocked or full, at most `queue_bytes` wait; further lines are dropped and
counted in `dropped`.

Must never: block or raise into the event loop, whatever a client puts into its path or model.
Everything here belongs to the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from router.observe.events import log_event
from router.observe.salt import Salter
from router.observe.sink import CLOSE_TIMEOUT_S, Sink

TEXT_CHARS_MAX = 256  # of a path or a model
BATCH_BYTES = 64 * 1024
STDOUT = 1

AttemptRecord = tuple[str, str, str, float]  # replica, kind, reason, milliseconds


class Record(msgspec.Struct, omit_defaults=True, gc=False, rename={"priority": "class"}):
    """One line; fields at their default are left out. `write` encodes at once: reuse is allowed.

    Build it with positional arguments: as many keyword arguments cost more than the line.
    """

    ts: float = 0.0  # arrival, seconds since 1970
    id: str = ""
    client: str = ""  # its address
    method: str = ""
    path: str = ""  # without the query, which may hold secrets
    kind: str = ""
    model: str | None = None
    stream: bool = False
    status: int = 0
    reason: str = ""
    replica: str = ""  # whose answer the client got
    attempts: list[AttemptRecord] = []
    ttft_ms: float | None = None
    duration_ms: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    # What a replay needs. Hashes are salted; counts are the engine's, None where it told none.
    priority: str = ""  # by name
    tenant: str = ""  # its key, or the credential that it came with
    session: str = ""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    exact: bool = False  # they are the counts of a whole answer
    estimated_tokens: int = 0  # of the prompt, by the router
    blocks: bytes = b""  # six bytes for every two leading blocks of the prompt, as base64
    queue_ms: float | None = None  # in the queue, all together; None: it never waited there
    # The rest of its flow (`intake/flow.py`).
    within: str = ""  # the client address whose share it used; "": it had a share of its own
    user: str = ""  # of its tenant
    known_key: bool = False  # its tenant is in the keys file
    sent_as: str = ""  # as engines know it, followed by `-` and the attempt; "": `id` itself
    # Of the attempt whose answer the client got: from its dispatch to its first content (None: that
    # is `ttft_ms`, as there was no wait and no other attempt), ...
    engine_ms: float | None = None
    told: str = ""  # ... and the number that told its engine how urgent it is


class AccessLog:
    """Takes `Record`s and gets them to `path`: a file, "-" for standard output, "" for nowhere.

    `flush_s` is in seconds; `salt` and `blocks` are as in `Salter`. Raises OSError when the file
    cannot be opened.
    """

    def __init__(
        self,
        path: str,
        flush_s: float = 0.5,
        queue_bytes: int = 4 << 20,
        salt: str = "",
        blocks: int = 64,
    ) -> None:
        self.enabled = path != ""
        self.salter = Salter(salt, blocks)
        self._flush_s = flush_s
        # Two batches of room are kept back: the one being filled and the one being handed over.
        self._batch_bytes = min(BATCH_BYTES, queue_bytes // 4)
        self._sink: Sink | None = None
        if path:
            room = queue_bytes - self._batch_bytes
            self._sink = Sink(STDOUT if path == "-" else path, room, _report)
        self._encode_into = msgspec.json.Encoder().encode_into
        self._batch = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """Lines that were not written, for want of room or because the sink refused them."""
        return self._dropped + (self._sink.lost_lines if self._sink is not None else 0)

    @property
    def is_armed(self) -> bool:
        """Whether a flush timer runs; never while nothing waits."""
        return self._timer is not None

    @property
    def waiting_bytes(self) -> int:
        """Bytes encoded and not yet written."""
        return len(self._batch) + (self._sink.waiting_bytes if self._sink is not None else 0)

    def write(self, record: Record) -> None:
        """Encode one line. Must be called in a running event loop, which the flush timer needs."""
        if not self.enabled:
            return
        batch = self._batch
        if len(batch) >= self._batch_bytes:
            if not self._hand_over():
                self._dropped += 1
                return
            batch = self._batch
        if len(record.path) > TEXT_CHARS_MAX:
            record.path = record.path[:TEXT_CHARS_MAX]
        model = record.model
        if model is not None and len(model) > TEXT_CHARS_MAX:
            record.model = model[:TEXT_CHARS_MAX]
        start = len(batch)
        try:
            self._encode_into(record, batch, -1)
        except Exception:
            del batch[start:]
            self._write_repaired(record, batch)
        else:
            batch += b"\n"
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._flush_s, self._flush)

    def reopen(self) -> None:
        """Go on in a new file of the same name (after rotation); earlier lines go to the old one.

        A name that cannot be opened leaves the old file in use and is reported.
        """
        if self._sink is not None:
            self._hand_over()
            self._sink.reopen()

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Write what waits, for at most `timeout_s` (seconds); 0 leaves that to the thread."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.enabled = False
        if self._sink is not None:
            if not self._hand_over():
                self._drop_batch()
            self._sink.close(timeout_s)

    def _flush(self) -> None:
        self._timer = None
        if not self._hand_over():
            self._timer = asyncio.get_running_loop().call_later(self._flush_s, self._flush)

    def _hand_over(self) -> bool:
        """Give the batch to the thread; False if it has too much waiting already."""
        batch = self._batch
        if not batch:
            return True
        assert self._sink is not None
        if not self._sink.put(batch):
            if self._sink.waiting_bytes:
                return False
            self._drop_batch()  # one line larger than the whole queue would wait for ever
            return True
        self._batch = bytearray()
        return True

    def _drop_batch(self) -> None:
        self._dropped += self._batch.count(b"\n")
        self._batch = bytearray()

    def _write_repaired(self, record: Record, batch: bytearray) -> None:
        """The slow way for a record that does not encode: lone surrogates become `?`."""
        start = len(batch)
        try:
            fields = {
                name: _utf8(value)
                for name, value, default in zip(
                    record.__struct_fields__,
                    msgspec.structs.astuple(record),
                    record.__struct_defaults__,
                    strict=True,
                )
                if value != _DEFAULTS.get(name, default)
            }
            self._encode_into(fields, batch, -1)
        except Exception:
            del batch[start:]
            self._dropped += 1
        else:
            batch += b"\n"


# A mutable default stands in __struct_defaults__ as a factory.
_DEFAULTS: dict[str, object] = {"attempts": []}


def _utf8(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list | tuple):
        return [_utf8(part) for part in value]
    return value


def _report(err: OSError) -> None:
    log_event(logging.ERROR, "access log lines lost", error=str(err))
