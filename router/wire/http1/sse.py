"""Finds the first event with content in a stream of server-sent events.

An engine's headers do not mean that a token exists: vLLM and TensorRT-LLM send 200 before prefill.
Role-only chunks, `response.created`, `message_start`, comments and pings contain no generated
content either. Until the first event with content, the router can still replace this replica's
response with the response of another replica. Each event is checked in the formats of OpenAI's,
Anthropic's and the engines' own APIs. An event of unknown format counts as content, because to hold
back a real token would be worse.

`ErrorWatch` finds errors that an engine reports later, in the middle of its output.

The code uses no socket and no clock. Must never: change the stream, or keep more than one
unfinished event.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any, Final

import msgspec

from router.core.unreadable import NOT_JSON

_decode = msgspec.json.Decoder().decode

_TEXT_KEYS: Final = (
    "content",
    "reasoning_content",
    "reasoning",
    "tool_calls",
    "refusal",
    "function_call",
    "audio",
)
_QUIET_TYPES: Final = frozenset(
    {
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning_part.added",
        "message_start",
        "content_block_start",
        "ping",
    }
)
_ERROR_TYPES: Final = frozenset({"error", "response.failed"})


class EventKind(IntEnum):
    NOTHING = 0  # no content and no error so far
    CONTENT = 1  # generated content, or an error that the client caused
    ERROR = 2  # an error of the engine
    BUSY = 3  # the engine reports overload; another replica may have capacity


class FirstContent:
    """Reads the body of one stream, piece by piece, until an event with content or an error.

    A call of `feed` examines the passed bytes and the unfinished event before them, which has at
    most `cap` bytes.
    """

    __slots__ = ("_after_cr", "_cap", "_pending", "quiet")

    def __init__(self, cap: int) -> None:
        self.quiet = 0  # number of events so far without content; comments are not counted
        self._pending = b""
        self._after_cr = False
        self._cap = cap  # an unfinished event with more bytes than this counts as content

    def feed(self, data: bytes) -> EventKind:
        """Return the kind of the data so far: NOTHING until an event with content or an error."""
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]  # the CR at the end of the previous piece and this LF are one line end
        self._after_cr = data.endswith(b"\r") or (self._after_cr and not data)
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        start = looked = 0
        if self._pending:
            looked = len(self._pending) - 1  # an event can only end after the last pending byte
            data = self._pending + data
        while True:
            end = data.find(b"\n\n", looked)
            if end < 0:
                break
            if end > start:
                verdict = judge(data[start:end])
                if verdict:
                    self._pending = b""
                    return verdict
            if not is_comment(data[start:end]):
                self.quiet += 1
            start = looked = end + 2
        self._pending = data[start:]
        return EventKind.CONTENT if len(self._pending) > self._cap else EventKind.NOTHING


def is_comment(event: bytes) -> bool:
    """Return whether all lines are comments (WHATWG HTML section 9.2.6), such as `: ping`.

    `event`: the lines between two blank lines, separated by LF.
    """
    return event.startswith(b":") and event.count(b"\n") == event.count(b"\n:")


def judge(event: bytes) -> EventKind:
    """Return the kind of one event, which is passed without the blank line that ends it."""
    if b"data:" not in event:
        return EventKind.NOTHING
    lines = [line[5:] for line in event.split(b"\n") if line.startswith(b"data:")]
    data = (lines[0] if len(lines) == 1 else b"\n".join(lines)).strip()
    if not data or data == b"[DONE]":
        return EventKind.NOTHING
    try:
        body = _decode(data)
    except NOT_JSON:
        return EventKind.CONTENT
    if not isinstance(body, dict):
        return EventKind.CONTENT
    return _judge_body(body)


def _judge_body(body: dict[str, Any]) -> EventKind:
    kind = body.get("type")
    if body.get("error") is not None or kind in _ERROR_TYPES:
        return _judge_error(body.get("error"))
    if isinstance(kind, str):
        return EventKind.NOTHING if kind in _QUIET_TYPES else EventKind.CONTENT
    choices = body.get("choices")
    if not isinstance(choices, list):
        return EventKind.CONTENT
    for choice in choices:
        if not isinstance(choice, dict):
            return EventKind.CONTENT
        if choice.get("finish_reason") is not None or choice.get("text"):
            return EventKind.CONTENT
        delta = choice.get("delta")
        if isinstance(delta, dict) and any(delta.get(key) for key in _TEXT_KEYS):
            return EventKind.CONTENT
    return EventKind.NOTHING


def _judge_error(error: object) -> EventKind:
    """Return the kind of an error event. The codes 429 and 503 mean BUSY.

    TGI reports overload with the code 422 and a message. Other 4xx codes are errors that the client
    caused; they count as CONTENT, so they are forwarded.
    """
    if not isinstance(error, dict):
        return EventKind.ERROR
    code = error.get("code", error.get("http_status_code"))
    if code in (429, 503) or error.get("message") == "Model is overloaded":
        return EventKind.BUSY
    return EventKind.CONTENT if isinstance(code, int) and 400 <= code < 500 else EventKind.ERROR


_CODE = re.compile(rb'"(?:code|http_status_code)"\s*:\s*"?([0-9]{3})')
# How a line of an error event begins. Only an event with such a line is searched for `"error"`.
ERROR_MARKS: Final = (b'data: {"error"', b'data:{"error"', b"event: error")
_MARK_BYTES: Final = max(map(len, ERROR_MARKS))
_DATA: Final = ERROR_MARKS[0]
_COMPACT: Final = ERROR_MARKS[1]
_EVENT: Final = ERROR_MARKS[2]
_MARK = re.compile(b"\n(?:" + b"|".join(re.escape(mark) for mark in ERROR_MARKS) + b")")
# The number of latest bytes of an unfinished event that are kept: enough for the line
# `event: error` and the JSON up to its `"error"`.
_SEAM: Final = 64
_REPORT: Final = 16 * 1024  # maximum bytes of an error event that are searched for its code


def is_error_line(data: bytes, at: int = 0) -> bool:
    """Return whether the line that begins at the index `at` begins with one of `ERROR_MARKS`."""
    line = data[at : at + _MARK_BYTES] if at else data
    # Compiled, three calls take less time than one call with the tuple.
    if line.startswith(_DATA):
        return True
    return line.startswith(_COMPACT) or line.startswith(_EVENT)  # noqa: PIE810


def is_server_error(report: bytes) -> bool:
    """Return whether the engine caused the error: `report` has no code, or a code from 500 on."""
    code = _CODE.search(report)
    return code is None or code.group(1) >= b"500"


def _find_report(data: bytes) -> int:
    """Return the index of the line end before the mark of the first error event, or -1.

    An error event has a line that begins with one of the `ERROR_MARKS`, and `"error"` after it. An
    event with a mark but without `"error"` is skipped, so no byte is searched twice.
    """
    mark = _MARK.search(data)
    while mark is not None:
        at = mark.start()
        end = data.find(b"\n\n", at + 1)
        if end < 0:
            end = len(data)
        if data.find(b'"error"', at, end) >= 0:
            return at
        mark = _MARK.search(data, end)
    return -1


def find_error(events: bytes) -> int:
    """Return the index of the first event that reports an error; -1 if there is none.

    `events`: the bytes of one or more complete events.
    """
    at = _find_report(b"\n" + events)
    if at <= 0:
        return at
    # The line with the mark may not be the first line of the event, so the event's start is found.
    before = events.rfind(b"\n\n", 0, at)
    return 0 if before < 0 else before + 2


class ErrorWatch:
    """Detects whether a stream reports an error, even if an event is split over several reads.

    A stream reports an error if a line begins with one of the `ERROR_MARKS` and `"error"` comes
    later in the same event. Generated text about errors does not match, because it is inside a JSON
    string: no line begins there, and quotes are escaped. Only two kinds of reads must be passed to
    `feed`: reads that contain `"error"`, and reads that begin or end inside an event.
    """

    __slots__ = ("_is_open", "_report", "_seam")

    def __init__(self) -> None:
        # The latest bytes of an unfinished event, because a mark may be split over two reads.
        self._seam = b"\n"
        self._report = b""
        self._is_open = False  # whether the error event continues in the next read

    def feed(self, data: bytes, is_cut: bool) -> None:
        """Examines one read of the stream. `is_cut`: `data` ends inside an event."""
        if self._report:
            if self._is_open:
                self._report += data[: _REPORT - len(self._report)]
                self._is_open = is_cut and len(self._report) < _REPORT
            return
        looked = self._seam + data
        if b'"error"' in looked:
            at = _find_report(looked)
            if at >= 0:
                self._report = looked[at : at + _REPORT]
                self._is_open = is_cut
        self._seam = b"\n"
        if is_cut:
            seam = looked[-_SEAM:]
            self._seam = seam[seam.rfind(b"\n\n") + 1 :]

    @property
    def has_seen(self) -> bool:
        """Return whether an error was reported."""
        return bool(self._report)

    @property
    def blames_server(self) -> bool:
        """Return whether an error was reported that the engine caused.

        The value may change until the stream has ended.
        """
        return bool(self._report) and is_server_error(self._report)
