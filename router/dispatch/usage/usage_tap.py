"""Reads the token counts from one event stream on its way to the client.

A chat or completion stream reports its counts in an event without choices before `[DONE]`, if the
request asked for them. Other routes report the counts in their last event. If only the router has
asked for the counts (`usage_ask.py`), a `UsageTap` removes that event from the stream.

Rules:
1. An event is removed only if it has no choices and a `usage`. If a content event has a `usage`
   that was not asked for, the engine always reports it; then nothing is removed.
2. Counts are exact if they are the engine's last report and the answer is complete. All other
   counts are estimates: one token per event, minus the events before the first content.
3. Nothing is decoded per token. A read that consists of one event without counts costs a search for
   a byte and a search for a word. Events with counts are kept and decoded at the end.

The functions are pure: bytes in, bytes and numbers out. Must never: hold back more than `_HELD`
bytes of an incomplete event and one whole event, or change a relayed event (only
`Closing` adds the fingerprint to one event).
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from router.core.unreadable import NOT_JSON
from router.dispatch.usage.stream_text import text_bytes
from router.dispatch.usage.token_counts import (
    OBJECT,
    TAIL,
    Usage,
    counts_of,
    last_object,
    usage_in_response,
    usage_of_numbers,
)
from router.dispatch.usage.usage_numbers import Numbers
from router.fleet.cadence import Cadence
from router.fleet.engines.common.descriptor import COUNTS
from router.wire.http1.sse import ErrorWatch, is_comment, is_error_line

# Maximum bytes of an incomplete event that are held; usage events are shorter.
_HELD: Final = 32 * 1024
# Maximum bytes of an incomplete event of /v1/responses that are kept to be decoded. The event
# contains the tools of the request. Its bytes are relayed at once.
_RESPONSE: Final = 1024 * 1024
# A blank line, which ends an event (WHATWG HTML section 9.2.6).
_BLANK: Final = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_COLON: Final = ord(":")  # A line that begins with it is a comment.
# The name of an event of /v1/responses with new text, and maximum bytes of the line with the name.
_DELTA: Final = b".delta"
_LINE: Final = 80
# Bytes of [DONE], and of the members that the last event has beside those of all events.
_CLOSING_BYTES: Final = 14 + 96
_USAGE: Final = b'"usage"'  # Some engines write `"usage":null` into each event.
# The last event of a stream of OpenAI's API, without its line ends.
_DONE: Final = (b"data: [DONE]", b"data:[DONE]")
_DONE_BYTES: Final = 14  # Maximum bytes of that event with two line feeds.


class UsageTap:
    """Reads the counts from one event stream on its way to the client.

    `feed` gets the bytes of every read, in order, and returns the bytes to relay. With `takes_out`,
    the usage event is removed from them. With `takes_out`, or after `relay_whole_events`, the
    beginning of an event is held until the event's end; otherwise no bytes are held.
    """

    __slots__ = (
        "_closing",
        "_drops_lf",
        "_errors",
        "_event",
        "_events",
        "_first",
        "_holds_end",
        "_is_aligned",
        "_is_response",
        "_is_withheld",
        "_last",
        "_last_at",
        "_mark",
        "_meter",
        "_numbers",
        "_quiet",
        "_sample",
        "_sample_at",
        "_size",
        "_takes_out",
        "_whole",
        "has_done",
    )

    def __init__(
        self,
        *,
        takes_out: bool = False,
        mark: bytes = COUNTS,
        quiet: int = 0,
        meter: Cadence | None = None,
    ) -> None:
        """Create a tap for one stream.

        `takes_out`: remove the usage event. `mark`: bytes that every event with counts contains,
        and few other events. `quiet`: the number of events before the first content. `meter`: an
        object whose `events` is increased with every event.
        """
        self._meter = Cadence() if meter is None else meter
        # Examines the stream for errors, since the first read that may contain a part of one.
        self._errors: ErrorWatch | None = None
        self.has_done = False  # Whether [DONE] has come, so the client has the whole answer.
        self._takes_out = takes_out
        self._holds_end = takes_out  # Whether the event with the `finish_reason` is held.
        self._closing: Closing | None = None  # Holds it, from that event on.
        self._whole = False
        self._mark = mark
        self._quiet = quiet
        # Number of events that have ended. Comments are not events: some engines send `: ping`.
        self._events = 0
        self._is_aligned = True  # Whether the last read ended at the end of an event.
        # The bytes of the unfinished event, or only its last bytes if it was already relayed.
        # `None`: no bytes, as most of the time in most streams.
        self._event: bytearray | None = None
        # Whether the bytes in `_event` were not relayed yet.
        self._is_withheld = takes_out
        # Whether the blank line after a removed event may end with a line feed in the next read.
        self._drops_lf = False
        # The bytes of the first `usage`, the bytes of the last `usage`, and the number of events
        # that had ended when the last `usage` was read.
        self._first = b""
        self._last = b""
        self._last_at = 0
        # Reads the counts of events that have no `usage` object.
        self._numbers: Numbers | None = None
        self._is_response = False
        # The bytes of the content events that have ended, and some of these events. A sample is
        # taken when the number of events has doubled.
        self._size = 0
        self._sample = b""
        self._sample_at = quiet

    def read_responses(self) -> None:
        """Read the stream as one of /v1/responses. Called before the first `feed`.

        The events contain objects that the client wrote, so only the answer's own `usage` counts
        (`usage_in_response`).
        """
        self._is_response = True

    def relay_whole_events(self) -> None:
        """Relay whole events only, because the stream may break. Called before the first `feed`.

        The engine's fingerprint is not kept: such a stream must not hold back its last event.
        """
        self._whole = self._is_withheld = True
        self._holds_end = False

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to relay, given the bytes of one read. This runs for every token."""
        if (
            self._is_aligned
            and len(data) > _DONE_BYTES
            and data.endswith(b"\n\n")
            # The read is one event of one line, as most reads are.
            and data.find(b"\n") == len(data) - 2
            and data[0] != _COLON
            and not is_error_line(data)
            # Faster than `in`, which first raises an error inside CPython.
            and data.find(self._mark) < 0
        ):
            closing = self._closing
            if not self._holds_end or (
                (closing is None or not closing.held) and data.find(FINISH) < 0
            ):
                if self._events >= self._sample_at:
                    self._take_sample(data)
                self._size += len(data)
                self._events += 1
                self._meter.events += 1
                return data
        data = self._look(data)
        closing = self._closing
        if closing is None:
            if not self._holds_end or data.find(FINISH) < 0:
                return data
            closing = self._closing = Closing()
        return closing.pass_on(data)

    def flush(self) -> bytes:
        """Return the held bytes at the end of the stream: an incomplete last event."""
        rest = b"" if self._event is None else bytes(self._event)
        self._event = None
        if self._mark in rest:
            self._note(rest)
        out = self._without_usage(rest) if self._is_withheld else b""
        return self.release(out)

    def release(self, data: bytes = b"") -> bytes:
        """Return the held whole events and the bytes after them; no more bytes will come."""
        return data if self._closing is None else self._closing.release(data)

    @property
    def has_seen_error(self) -> bool:
        """Whether the stream has reported an error."""
        return self._errors is not None and self._errors.has_seen

    @property
    def blames_server(self) -> bool:
        """Whether the stream has reported an error that the engine caused."""
        return self._errors is not None and self._errors.blames_server

    @property
    def content_events(self) -> int:
        """The number of content events of a complete stream whose usage was a separate event."""
        return self._events - self._quiet - 2

    @property
    def content_so_far(self) -> int:
        """The number of events from the first content on; below 0 before the first content."""
        return self._events - self._quiet

    def content_at_end(self, is_whole: bool) -> int:
        """The number of content events of a stream that has ended. `is_whole`: it ended normally.

        A normal end is [DONE], and an event with the counts before it if the engine reports them.
        """
        closing = (2 if self._last else 1) if is_whole else 0
        return self._events - self._quiet - closing

    @property
    def events(self) -> int:
        """The number of events that have ended."""
        return self._events

    @property
    def changes_length(self) -> bool:
        """Whether the relayed stream may have another length than the replica's stream."""
        return self._takes_out or self._whole

    @property
    def ends_between_events(self) -> bool:
        """Whether the relayed bytes end with a whole event."""
        return self._events > 0 and not self.has_cut_event

    @property
    def has_cut_event(self) -> bool:
        """Whether the relayed bytes end inside an event."""
        event = self._event
        return event is not None and not self._is_withheld and bool(event.strip(b"\r\n"))

    def result(self, is_whole: bool) -> Usage:
        """Return the counts known so far. `is_whole`: the stream ended normally."""
        # A complete stream ends with [DONE], which is an event without a token.
        counted = max(0, self._events - self._quiet - (1 if is_whole else 0))
        usage = counts_of(self._last, self._first) if self._last else None
        if usage is None and self._numbers is not None:
            numbers = usage_of_numbers(self._numbers)
            if numbers is not None:
                counted = max(numbers.output_tokens or 0, counted)
                return Usage(numbers.prompt_tokens, counted, numbers.cached_tokens, False)
        if usage is None:
            return Usage(None, counted, None, False)
        prompt, output = usage.prompt_tokens, usage.output_tokens or 0
        own = usage if self._first == self._last else counts_of(self._last)
        told = None if own is None else own.output_tokens
        # After the last counts, at most one event follows, which closes the stream. An answer with
        # content has tokens.
        is_last = is_whole and self._events - self._last_at <= 1
        if is_last and told is not None and (told or counted <= 1):
            return Usage(prompt, output, usage.cached_tokens, prompt is not None)
        return Usage(prompt, max(output, counted), usage.cached_tokens, False)

    # -- the slow path ------------------------------------------------------------------------

    def _look(self, data: bytes) -> bytes:
        """Handle a read that is not one simple event.

        It has several lines or counts, or begins with a comment or an error.
        """
        if self._is_aligned and self._is_two_lines(data):
            self._events += 1
            self._meter.events += 1
            return data
        if self._drops_lf:
            self._drops_lf = False
            self._is_aligned = True
            data = data.removeprefix(b"\n")
            if not data:
                return b""
        end = self._end_of_events(data)
        is_cut = end < len(data)
        errors = self._errors
        if errors is None and (is_cut or b'"error"' in data):
            errors = self._errors = ErrorWatch()
        if errors is not None:
            errors.feed(data, is_cut)
        if not end:
            event = self._event
            if event is None:
                event = self._event = bytearray()
            event += data
            self._is_aligned = False
            if self._is_withheld and len(event) <= _HELD:
                return b""
            return self._relay_long(event, data)
        was_withheld = self._is_withheld
        out = self._count_events(data[:end] if is_cut else data)
        self._is_withheld = self._takes_out or self._whole
        if not is_cut:
            self._event = None
            self._is_aligned = not self._drops_lf
            return out
        self._is_aligned = self._drops_lf = False
        event = self._event = bytearray(data[end:])
        if self._is_withheld:
            return out if len(event) <= _HELD else out + self._relay_long(event, b"")
        self._trim(event)
        return out + data[end:] if was_withheld else data

    def _is_two_lines(self, data: bytes) -> bool:
        """Measure a read that is one event of the lines `event:` and `data:`, without counts.

        The events of Anthropic's API have this form. Returns False for any other read.
        """
        line = data.find(b"\n") + 1
        if (
            not data.endswith(b"\n\n")
            or data.find(b"\n", line) != len(data) - 2
            or data[0] == _COLON
            or is_error_line(data)
            or is_error_line(data, line)
            or data.find(self._mark) >= 0
        ):
            return False
        # In /v1/responses, the events that end a part repeat the part's whole text.
        if not self._is_response or data.find(_DELTA, 0, line) >= 0:
            if self._events >= self._sample_at:
                self._take_sample(data)
            self._size += len(data)
        return True

    def _count_events(self, done: bytes) -> bytes:
        """Count the events that end with these bytes, and note their usage.

        Returns the bytes to relay.
        """
        event = self._event
        whole = done if event is None else bytes(event) + done
        count = _count(whole)
        self.has_done = whole.rstrip(b"\r\n").endswith(_DONE)
        self._measure(whole, count)
        self._events += count
        self._meter.events += count
        out = whole if self._is_withheld else done
        if self._mark in whole:
            self._note(whole)
            if self._takes_out:
                out = self._without_usage(out)
        return out

    def _take_sample(self, events: bytes) -> None:
        if self._events <= self._quiet:
            self._size = 0  # The events before the first content do not count.
        if len(events) <= _HELD:
            self._sample = events
            self._sample_at = 2 * self._events + 1

    def _measure(self, whole: bytes, count: int) -> None:
        """Add the content of some events, of which none was counted yet, to the measured bytes."""
        if self._events + count <= self._quiet or (count == 1 and self._mark in whole):
            return
        if self._events < self._quiet or self._is_response:
            events = [event for event in _BLANK.split(whole) if event and not is_comment(event)]
            events = events[max(0, self._quiet - self._events) :]
            if self._is_response:
                events = [event for event in events if _DELTA in event[:_LINE]]
            whole = b"".join([event + b"\n\n" for event in events])
            if not whole:
                return
        if self._events + count > self._sample_at:
            self._take_sample(whole)
        self._size += len(whole)

    def text_bytes(self, is_whole: bool) -> int:
        """Estimate how many bytes of the stream are generated text.

        `is_whole`: the stream ended normally.
        """
        count = self.content_at_end(is_whole)
        size = self._size - (_CLOSING_BYTES if is_whole else 0)
        return text_bytes(_BLANK.split(self._sample), size, count) if count > 0 else 0

    def _end_of_events(self, data: bytes) -> int:
        """Return how many bytes of a read belong to events that have ended, or 0."""
        # The blank line may have begun in the bytes that were read before.
        seam = b"" if self._event is None else bytes(self._event[-3:])
        looked = seam + data if seam else data
        if b"\r" not in looked:
            return max(0, looked.rfind(b"\n\n") + 2 - len(seam)) if b"\n\n" in looked else 0
        end = _behind_blank(looked, 0, len(looked))
        run = looked[len(looked[:end].rstrip(b"\r\n")) : end]
        # If the number of line ends is odd, the last one belongs to the next event.
        if len(run.replace(b"\r\n", b"\n")) % 2:
            end -= 2 if run.endswith(b"\r\n") else 1
        return max(0, end - len(seam))

    def _relay_long(self, event: bytearray, data: bytes) -> bytes:
        """Relay an event that is too long to be held. `data`: the latest bytes of the event."""
        out = bytes(event) if self._is_withheld else data
        self._is_withheld = False
        self._trim(event)
        return out

    def _trim(self, event: bytearray) -> None:
        if len(event) > (_RESPONSE if self._is_response else _HELD):
            self._seek(bytes(event[:-TAIL]))
            del event[:-TAIL]

    def _seek(self, events: bytes) -> None:
        """Search events for counts outside of a `usage` object, or in an event too long to keep."""
        if self._is_response:
            return
        if self._numbers is None:
            self._numbers = Numbers()
        self._numbers.feed(events)

    def _note(self, events: bytes) -> None:
        last = self._own_usage(events) if self._is_response else last_object(events)
        if last:
            self._last = last
            self._last_at = self._events
            if not self._first and not self._is_response:
                first = OBJECT.search(events)
                assert first is not None
                self._first = events[first.start() : first.start() + TAIL]
        else:
            self._seek(events)

    def _own_usage(self, events: bytes) -> bytes:
        """Return the last `usage` of an answer of /v1/responses in these events; b"": no usage."""
        last = b""
        for event in _BLANK.split(events):
            if self._mark in event and _USAGE in event:
                last = usage_in_response(_data_of(event)) or last
        return last

    def _without_usage(self, events: bytes) -> bytes:
        """Return the events without the events that contain only the usage.

        `events`: whole events.
        """
        kept: list[bytes] = []
        # `start`: where the bytes begin that must still be added to `kept`. `end`: where the last
        # examined event ends.
        start = end = 0
        at = events.find(self._mark) if _USAGE in events else -1
        while at >= 0 and self._takes_out:
            begin = _behind_blank(events, end, at)
            blank = _BLANK.search(events, at)
            end = len(events) if blank is None else blank.end()
            event = events[begin:end]
            body = _json_of(event) if _USAGE in event else {}
            if isinstance(body.get("usage"), dict):
                if body.get("choices") == []:
                    # Line ends before an event belong to the end of the previous event.
                    kept.append(events[start : end - len(event.lstrip(b"\r\n"))])
                    self._drops_lf = end == len(events) and event.endswith(b"\r")
                    self._keep_fingerprint(body)
                    start = end
                elif body.get("choices"):
                    self._takes_out = False  # The engine reports usage without being asked.
            at = events.find(self._mark, end)
        kept.append(events[start:])
        return b"".join(kept)

    def _keep_fingerprint(self, body: dict[str, Any]) -> None:
        fingerprint = body.get("system_fingerprint")
        if self._holds_end and isinstance(fingerprint, str):
            closing = self._closing
            if closing is None:  # The event with the `finish_reason` came in the same read.
                closing = self._closing = Closing()
            closing.fingerprint = msgspec.json.encode(fingerprint)


def _count(events: bytes) -> int:
    """Count the events that end in these bytes; comments are not counted."""
    if b"\r" in events:
        events = events.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    count = events.count(b"\n\n")
    if events.startswith(b":") or b"\n:" in events:
        # Line ends before an event belong to the previous event.
        count -= sum([is_comment(event.lstrip(b"\n")) for event in events.split(b"\n\n")[:-1]])
    return count


# The possible ends of a blank line, for every kind of line end.
_BLANK_ENDS: Final = (b"\n\n", b"\r\r", b"\n\r", b"\n\r\n", b"\r\r\n")


def _behind_blank(data: bytes, start: int, end: int) -> int:
    """Return the index after the last blank line between `start` and `end`; else `start`."""
    found = start
    for blank in _BLANK_ENDS:
        at = data.rfind(blank, start, end)
        if at >= 0:
            found = max(found, at + len(blank))
    return found


_decode = msgspec.json.Decoder().decode


def _data_of(event: bytes) -> bytes:
    lines = event.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return b"\n".join(line[5:] for line in lines if line.startswith(b"data:"))


def _json_of(event: bytes) -> dict[str, Any]:
    try:
        body = _decode(_data_of(event))
    except NOT_JSON:
        return {}
    return body if isinstance(body, dict) else {}


FINISH: Final = b'"finish_reason":"'
_FINGERPRINT: Final = b'"system_fingerprint"'


class Closing:
    """Handles the end of one stream whose usage event is removed.

    vLLM sends `system_fingerprint` in the last event of a stream: the event with the usage if it
    was requested, else the event with the `finish_reason`. So the latest event with a
    `finish_reason` is held until the next event, which follows at once. Then the fingerprint of the
    removed event is added to the held event. No other byte is changed. All relayed bytes of the
    stream pass through this object.
    """

    __slots__ = ("fingerprint", "held")

    def __init__(self) -> None:
        self.held = b""  # The latest event with a `finish_reason`, not relayed yet.
        self.fingerprint = b""  # The fingerprint of the removed usage event, as JSON.

    def pass_on(self, data: bytes) -> bytes:
        """Return the bytes that are relayed to the client now."""
        if self.fingerprint:
            return self.release(data)
        whole = self.held + data
        self.held = b""
        if not whole.endswith(b"\n\n"):
            return whole
        start = _start_of_event(whole, len(whole) - 2)
        if whole.find(FINISH, start) < 0:
            return whole
        self.held = whole[start:]
        return whole[:start]

    def release(self, data: bytes) -> bytes:
        """Return the held event and the bytes after it. Nothing is held afterwards."""
        whole = self.held + data
        self.held = b""
        if self.fingerprint:
            whole = _stamped(whole, self.fingerprint)
            self.fingerprint = b""
        return whole


def _start_of_event(data: bytes, inside: int) -> int:
    blank = data.rfind(b"\n\n", 0, inside)
    return blank + 2 if blank >= 0 else 0


def _stamped(data: bytes, fingerprint: bytes) -> bytes:
    """Add the fingerprint to the last event with a finish reason, unless the event has one."""
    at = data.rfind(FINISH)
    if at < 0:
        return data
    end = data.find(b"}\n\n", at)
    if end < 0 or data.find(_FINGERPRINT, _start_of_event(data, at), end) >= 0:
        return data
    return b"%b,%b:%b%b" % (data[:end], _FINGERPRINT, fingerprint, data[end:])
