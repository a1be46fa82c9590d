"""The corpora as test cases, and the ways in which a case is sent.

A case keeps the verdict of its author. Where the router is stricter, `house_rules` has the rule and
the RFC's words for it.
"""

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.places import DATA

FORMS = ("whole", "bytewise", "at_crlf", "followed")
FOLLOW_UP_TARGET = "/follow-up"
FOLLOW_UP = f"GET {FOLLOW_UP_TARGET} HTTP/1.1\r\nHost: router.test\r\n\r\n".encode()

# longer cases are cut at a prime size: the same kinds of splits in acceptable time
_BYTEWISE_LIMIT = 4096
_LONG_PIECE = 997


@dataclass(frozen=True)
class Case:
    """Raw bytes with their author's verdict."""

    id: str
    steps: tuple[bytes, ...]
    verdict: str
    completed: int | None = None  # messages that the author's parser completed; None: unknown
    statuses: str = ""  # allowed statuses of the first answer, by its author; "": unknown

    def expects(self, status: int | None) -> bool:
        """Whether the first answer may have this status; None: there was no answer."""
        if not self.statuses:
            return True
        if self.statuses in ("!101", "non-1xx response"):
            return status is None or status >= 200
        if status is None:
            return "close" in self.statuses
        said = re.findall(r"\b[1-5](?:xx|[0-9]{2})\b", self.statuses)
        return str(status) in said or f"{status // 100}xx" in said

    @property
    def data(self) -> bytes:
        return b"".join(self.steps)


def llhttp(direction: str) -> Iterator[Case]:
    """The strict cases of one direction; request cases also with the Host field that most of them
    lack.

    Excluded: lenient modes, and cases about the parser's own API (pausing it, declaring that there
    is no body), which no peer can trigger over the network.
    """
    for row in _rows("llhttp/llhttp_fixtures.jsonl"):
        meta = row["meta"]
        if row["oracle"] == "llhttp-lenient" or row["direction"] != direction:
            continue
        if "pause" in meta or "skipBody" in meta:
            continue
        case = Case(
            row["id"],
            (base64.b64decode(row["bytes_b64"]),),
            row["verdict"],
            row["messages_completed"],
        )
        yield case
        if direction == "request":
            hosted = _with_host(case.data, row["parser_log"])
            if hosted != case.data:
                yield replace(case, id=case.id + "+host", steps=(hosted,))


def http11probe() -> Iterator[Case]:
    for row in _rows("http11probe/http11probe_half.jsonl"):
        steps = row.get("steps") or [row]
        yield Case(
            row["id"],
            tuple(base64.b64decode(step["bytes_b64"]) for step in steps),
            row["verdict"],
            statuses=_statuses(row["expected"]),
        )


def _statuses(expected: dict[str, Any]) -> str:
    """The allowed statuses of a case, as `Exact(400)` or `Range2xx`; a close may be allowed, too.

    An expectation that is only a recommendation, or that names no status, is judged by the verdict
    of the case.
    """
    said = expected["desc"] or expected["status"].removeprefix("Range")
    if "warn" in said or "2xx without" in said or not re.search("[0-9]", said):
        return ""
    return said + " or close" if expected["allow_close"] else said


def _rows(name: str) -> Iterator[dict[str, Any]]:
    with (DATA / name).open() as lines:
        for line in lines:
            yield json.loads(line)


def _with_host(data: bytes, parser_log: str) -> bytes:
    """The same messages, with a Host field after each request line that has none.

    Without a Host field, most accepted cases would only test RFC 9112 section 3.2 (no Host: 400).
    """
    starts = [int(at) for at in re.findall(r"^off=(\d+) message begin", parser_log, re.MULTILINE)]
    for start in reversed(starts):
        line_end = data.find(b"\r\n", start)
        if line_end == start:  # the empty line that may come before a request line
            line_end = data.find(b"\r\n", start + 2)
        head_end = data.find(b"\r\n\r\n", start)
        head = data[start : head_end if head_end >= 0 else len(data)]
        if line_end < 0 or re.search(rb"^host[ \t]*:", head, re.IGNORECASE | re.MULTILINE):
            continue
        at = line_end + 2
        data = data[:at] + b"Host: router.test\r\n" + data[at:]
    return data


def pieces(steps: tuple[bytes, ...], form: str) -> Iterator[bytes]:
    """The segments in which a case is sent."""
    for index, step in enumerate(steps):
        if form == "bytewise":
            size = 1 if len(step) <= _BYTEWISE_LIMIT else _LONG_PIECE
            for at in range(0, len(step), size):
                yield step[at : at + size]
        elif form == "at_crlf":
            # Between CR and LF: the split that a line-based reader most often gets wrong.
            yield from (piece for piece in re.split(rb"(?<=\r)(?=\n)", step) if piece)
        elif form == "followed" and index == len(steps) - 1:
            yield step + FOLLOW_UP
        else:
            yield step
