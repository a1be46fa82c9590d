"""Finds the first event with content in a stream of server-sent events.

An engine's headers do not mean that a token exists: vLLM and TensorRT-LLM send 200 before prefill.
Role-only chunks, `response.created`, `message_start`, comments and pings contain no generated
content either. Until the first event with content, another attempt can still replace this one. The
check is made per event, for the OpenAI, Anthropic and native shapes. An event of unknown shape
counts as content, because holding back a real token would be worse.

`ErrorWatch` finds errors that an engine reports later, in the middle of its output.

The code is pure: it takes bytes and returns a verdict. Must never: alter bytes, or keep more than
one unfinished event.
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
    NOTHING = 0  # no content so far
    CONTENT = 1  # the stream has begun to answer
    ERROR = 2  # the engine reports an error instead
    BUSY = 3  # the engine reports overload; another replica may have capacity


class FirstContent:
    """Takes the body of one stream, read by read, until there is a verdict.

    A call costs the bytes of its read and those of the unfinished event before it, which `cap`
    bounds.
    """

    __slots__ = ("_after_cr", "_cap", "_pending", "quiet")

    def __init__(self, cap: int) -> None:
        self.quiet = 0  # number of events so far without content
        self._pending = b""
        self._after_cr = False
        self._cap = cap  # maximum bytes of one unfinished event that are examined

    def feed(self, data: bytes) -> EventKind:
        """Returns the verdict on all data so far."""
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]  # after a CR in the previous read, this LF belongs to the same line end
        self._after_cr = data.endswith(b"\r") or (self._after_cr and not data)
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        start = looked = 0
        if self._pending:
            looked = len(self._pending) - 1  # no event ends before its last byte
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
            self.quiet += 1
            start = looked = end + 2
        self._pending = data[start:]
        return EventKind.CONTENT if len(self._pending) > self._cap else EventKind.NOTHING


def judge(event: bytes) -> EventKind:
    """Returns the verdict on one event, passed without its closing blank line."""
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
    """429 and 503 mean busy.

    TGI reports it in words, with code 422. Other 4xx codes count as an answer.
    """
    if not isinstance(error, dict):
        return EventKind.ERROR
    code = error.get("code", error.get("http_status_code"))
    if code in (429, 503) or error.get("message") == "Model is overloaded":
        return EventKind.BUSY
    return EventKind.CONTENT if isinstance(code, int) and 400 <= code < 500 else EventKind.ERROR


_CODE = re.compile(rb'"(?:code|http_status_code)"\s*:\s*"?([0-9]{3})')
# The beginnings of an error event or of one of its lines.
ERROR_MARKS: Final = (b'data: {"error"', b'data:{"error"', b"event: error")
_MARK = re.compile(b"\n(?:" + b"|".join(re.escape(mark) for mark in ERROR_MARKS) + b")")
# Kept bytes of an unfinished event: `event: error`, a line end and the JSON up to its `"error"`.
_SEAM: Final = 64
_REPORT: Final = 16 * 1024  # bytes of an error event that are searched for its code


def is_server_error(report: bytes) -> bool:
    """Returns whether the engine caused the error: no code, or a code of 500 or more."""
    code = _CODE.search(report)
    return code is None or code.group(1) >= b"500"


def _find_report(data: bytes) -> int:
    """Return the index of the line end before the mark of the first error event; -1: there is no
    error event.

    An event that has an error mark but no `"error"` after it is skipped, so no byte is searched
    twice.
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
    """Returns the index of the first event that reports an error; -1 if there is none.

    `events`: whole events.
    """
    at = _find_report(b"\n" + events)
    if at <= 0:
        return at
    before = events.rfind(b"\n\n", 0, at)  # the line with the error may not be the event's first
    return 0 if before < 0 else before + 2


class ErrorWatch:
    """Detects whether a stream reports an error, wherever its reads are cut.

    A stream reports an error if a line begins with one of the `ERROR_MARKS` and the key `"error"`
    is in the event. Generated text about errors does not match: it is inside a JSON string, where
    no line begins and quotes are escaped. Only two kinds of reads must be passed in: those that
    hold `"error"`, and those that begin or end inside an event.
    """

    __slots__ = ("_is_open", "_report", "_seam")

    def __init__(self) -> None:
        self._seam = b"\n"  # last bytes of an unfinished event: a mark may be split over two reads
        self._report = b""
        self._is_open = False  # the error event continues in the next read

    def feed(self, data: bytes, is_cut: bool) -> None:
        """`is_cut`: the data passed in ends inside an event."""
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
        """Returns whether an error was reported."""
        return bool(self._report)

    @property
    def blames_server(self) -> bool:
        """Returns whether the engine caused a reported error.

        The result is final when the stream has ended.
        """
        return bool(self._report) and is_server_error(self._report)
