"""Reads lines of Hedgerow's access log as rows with replica, tokens and times.

Decodes only the fields needed for an audit or a fit; a prompt's blocks are skipped. Incomplete
lines are skipped and counted: a disk was full, or the log is still being written. Events of the
router between the lines are skipped.

Must never hold more than one line, and never accept a line with an invalid value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from router.core.unreadable import NOT_JSON
from router.lab.simulator.traffic import TraceError
from router.lab.traces.format import (
    TIME_MAX,
    Milliseconds,
    Tokens,
    bad_json,
    check_incomplete,
    is_event,
)
from router.lab.traces.lines import Lines


class Row(msgspec.Struct, gc=False, rename={"priority": "class"}):
    """One request, with the fields of `router.observe.log.record.Record`.

    `ts` and `reason` are in every line: a file without them is not an access log.
    """

    ts: Annotated[float, msgspec.Meta(ge=0.0, le=TIME_MAX)]  # arrival, seconds since 1970
    reason: str
    client: str = ""
    kind: str = ""
    model: str | None = None
    stream: bool = False
    replica: str = ""
    attempts: list[tuple[str, str, str, Milliseconds]] = []  # (replica, kind, reason, duration)
    ttft_ms: Milliseconds | None = None
    duration_ms: Milliseconds = 0.0
    bytes_in: Annotated[int, msgspec.Meta(ge=0)] = 0
    priority: str = ""
    tenant: str = ""
    prompt_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    cached_tokens: Tokens | None = None
    estimated_tokens: Tokens = 0
    queue_ms: Milliseconds | None = None

    @property
    def ended(self) -> float:
        return self.ts + self.duration_ms * 1e-3


def rows(lines: Lines) -> Iterator[Row]:
    """Yield all rows in the order of the file, which is the order in which the requests ended.

    Raises TraceError.
    """
    decode = msgspec.json.Decoder(Row).decode
    unreadable: TraceError | None = None  # about the first incomplete line
    is_empty = True
    for line in lines:
        try:
            row = decode(line)
        except NOT_JSON as err:
            if not is_event(line):
                check_incomplete(lines, line, err)
                unreadable = unreadable or bad_json(lines, err)
            continue
        if row.kind or not is_event(line):
            is_empty = False
            yield row
    if is_empty and unreadable is not None:
        raise unreadable
