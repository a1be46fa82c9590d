"""Reads the token counts of a request from a whole answer.

An engine reports the counts near the end of a whole answer, in its own format. Event streams are
read by `usage_tap.py`, which uses the same functions for the objects in the events.

Most answers contain no object that the client wrote, so a search for the name `usage` is enough.
Answers of /v1/responses contain the request's `metadata` and `tools`, in which a client can write a
`usage` of its own. So their counts are read only from the member `usage` of the answer itself.

The functions are pure: bytes in, numbers out. They must never raise, whatever the bytes are.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from router.core.unreadable import NOT_JSON
from router.dispatch.usage.usage_numbers import Numbers
from router.dispatch.usage.usage_shapes import ResponseEvent, UsageAnswer
from router.fleet.engines.common.registry import COUNTS_NATIVELY
from router.intake.members import MemberScan
from router.intake.routes import RESPONSES_PATH
from router.wire.http1.digits import number_at


class Usage:
    """Token counts of one request.

    `None`: the count was not reported. Objects are compared by value.
    """

    __slots__ = ("cached_tokens", "exact", "output_tokens", "prompt_tokens")

    def __init__(
        self,
        prompt_tokens: int | None,
        output_tokens: int | None,
        cached_tokens: int | None,
        exact: bool,
    ) -> None:
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        # Number of prompt tokens that were in the engine's prefix cache.
        self.cached_tokens = cached_tokens
        # True if all counts come from the engine and cover the whole answer, including the prompt.
        self.exact = exact

    def _values(self) -> tuple[int | None, int | None, int | None, bool]:
        return self.prompt_tokens, self.output_tokens, self.cached_tokens, self.exact

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Usage) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"Usage{self._values()}"


UNKNOWN: Final = Usage(None, None, None, False)


_usage_answer = msgspec.json.Decoder(UsageAnswer).decode
_response_event = msgspec.json.Decoder(ResponseEvent).decode
OBJECT: Final = re.compile(rb'"(?:usage|timings)"[ \t\r\n]*:[ \t\r\n]*\{')
# The paths whose whole answers are not read by `usage_of`.
COUNTS_ELSEWHERE: Final = COUNTS_NATIVELY | {RESPONSES_PATH}
_USAGE: Final = frozenset({"usage"})
TAIL: Final = 2048  # Bytes that are searched at the end of a body, or from the name `usage` on.


def usage_of(data: bytes) -> Usage | None:
    """Return the counts of a whole answer; `None` if the answer has no counts.

    The counts are read from the last `usage` (or `timings`) near the end. If there is no such
    object, they are read from numbers anywhere in the answer.
    """
    end = data[-TAIL:]
    at = end.rfind(_START)
    if at >= 0:
        usual = _usual(end, at + len(_START))
        if usual is not None:
            return usual
    last = last_object(end)
    return counts_of(last) if last else native_of(data)


def usage_in_response(data: bytes) -> bytes:
    """Return the `usage` of an answer of /v1/responses, or of one of its events, as JSON.

    `data`: a whole answer, or the data of one event. Returns b"" if the data is not such an object,
    or if it has no `usage` in the right place.
    """
    try:
        found = _response_event(data)
    except NOT_JSON:
        return b""
    usage = bytes(found.usage)
    if not usage and found.response is not None:
        usage = bytes(found.response.usage)
    return usage if usage.startswith(b"{") else b""


def usage_elsewhere(path: bytes, data: bytes) -> Usage | None:
    """Return the counts of a whole answer of one of the paths in `COUNTS_ELSEWHERE`."""
    return counts_of(usage_in_response(data)) if path == RESPONSES_PATH else native_of(data)


def native_of(data: bytes) -> Usage | None:
    """Return counts from numbers anywhere in a whole answer; `None` if the answer has no counts."""
    numbers = Numbers()
    numbers.feed(data)
    return usage_of_numbers(numbers)


def usage_of_numbers(numbers: Numbers) -> Usage | None:
    usage = _usage_from(
        UsageAnswer(
            prompt_tokens=numbers.most(b"prompt_tokens", b"prompt_eval_count"),
            completion_tokens=numbers.most(
                b"completion_tokens", b"eval_count", b"generated_tokens"
            ),
            total_tokens=numbers.get(b"total_tokens"),
            prompt_tokens_details={"cached_tokens": numbers.get(b"cached_tokens")},
            input_tokens=numbers.get(b"input_tokens"),
            output_tokens=numbers.get(b"output_tokens"),
            cache_read_input_tokens=numbers.get(b"cache_read_input_tokens"),
            cache_creation_input_tokens=numbers.get(b"cache_creation_input_tokens"),
            prompt_n=numbers.get(b"prompt_n"),
            predicted_n=numbers.get(b"predicted_n"),
            cache_n=numbers.get(b"cache_n"),
        )
    )
    if usage is not None and not numbers.is_of_one:
        # The counts are not exact, because the prompt may have been counted once for each answer in
        # the list.
        usage.exact = False
    return usage


# The usual form of `usage`, as vLLM and SGLang write it: without spaces, `total_tokens` before or
# after the output's count, and details only as null. In compiled code, reading this form byte by
# byte takes a quarter of the time of a regular expression.
_START: Final = b'"usage":{"prompt_tokens":'
_TOTAL: Final = b',"total_tokens":'
_OUTPUT: Final = b',"completion_tokens":'
_DETAILS: Final = b',"prompt_tokens_details":null'
_DIGITS: Final = 15  # A number with more digits is not a count.


def _usual(data: bytes, at: int) -> Usage | None:
    """Return the counts if `usage` has the usual form and the prompt's count begins at `at`.

    Returns `None` for any other form.
    """
    prompt, at = number_at(data, at, _DIGITS)
    total = 0
    has_total = data[at : at + len(_TOTAL)] == _TOTAL
    if has_total:
        total, at = number_at(data, at + len(_TOTAL), _DIGITS)
    if data[at : at + len(_OUTPUT)] != _OUTPUT:
        return None
    output, at = number_at(data, at + len(_OUTPUT), _DIGITS)
    if not has_total and data[at : at + len(_TOTAL)] == _TOTAL:
        total, at = number_at(data, at + len(_TOTAL), _DIGITS)
    if data[at : at + len(_DETAILS)] == _DETAILS:
        at += len(_DETAILS)
    if prompt < 0 or output < 0 or total < 0 or data[at : at + 1] != b"}":
        return None
    return Usage(prompt, max(output, total - prompt), None, True)


def last_object(data: bytes) -> bytes:
    """Return the last `usage` that is an object, with the bytes after it; else the last
    `timings`."""
    for name in (b'"usage"', b'"timings"'):
        at = data.rfind(name)
        while at >= 0:
            if OBJECT.match(data, at) is not None:
                return data[at : at + TAIL]
            at = data.rfind(name, 0, at)
    return b""


def counts_of(data: bytes, before: bytes = b"") -> Usage | None:
    """Return the counts from data that begins with a member named `usage` or `timings`, or with its
    value.

    `before`: the same from earlier in the stream. A member that is missing or 0 in `data` keeps its
    earlier value: some engines report the prompt only at the beginning of a stream.
    """
    answer = _decoded(data)
    if answer is None:
        return _counts_of_first(before)
    earlier = _decoded(before) if before and before != data else None
    return _usage_from(answer if earlier is None else _merged(answer, earlier))


def _counts_of_first(before: bytes) -> Usage | None:
    earlier = _decoded(before) if before else None
    return None if earlier is None else _usage_from(earlier)


def _decoded(data: bytes) -> UsageAnswer | None:
    start = data.find(b"{")
    end = start
    # A search for braces is enough, because no string in these objects contains braces.
    while True:
        end = data.find(b"}", end) + 1
        if start < 0 or end == 0:
            return None
        if data.count(b"{", start, end) == data.count(b"}", start, end):
            break
    try:
        return _usage_answer(data[start:end])
    except NOT_JSON:
        return None


def _merged(answer: UsageAnswer, earlier: UsageAnswer) -> UsageAnswer:
    for name in UsageAnswer.__struct_fields__:
        value, before = getattr(answer, name), getattr(earlier, name)
        if before is not None and not isinstance(value, dict) and not count_in(value):
            setattr(answer, name, before)
    return answer


_MOST_TOKENS: Final = 1 << 48  # A larger number is no count.
_LONG_NUMBER: Final = 20  # Maximum characters of a text that is read as a count.


def count_in(value: object) -> int | None:
    """Return a member's value as a count; `None`: it is no count.

    Some engines write counts as floats or as texts.
    """
    if isinstance(value, str) and len(value) <= _LONG_NUMBER:
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, float) and 0.0 <= value <= _MOST_TOKENS:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS:
        return value
    return None


def _cached_in(details: object) -> int | None:
    return count_in(details.get("cached_tokens")) if isinstance(details, dict) else None


def _usage_from(answer: UsageAnswer) -> Usage | None:
    """Return the counts from the fields that any engine may use; `None` if there are no counts."""
    prompt = count_in(answer.prompt_tokens)
    cached = _cached_in(answer.prompt_tokens_details)
    if cached is None:
        cached = _cached_in(answer.input_tokens_details)
    if prompt is None:
        prompt = count_in(answer.input_tokens)
        if prompt is not None:
            # Anthropic's count excludes tokens that were read from the cache or written to it.
            read = count_in(answer.cache_read_input_tokens)
            prompt += (read or 0) + (count_in(answer.cache_creation_input_tokens) or 0)
            if cached is None:
                cached = read
    if prompt is None:
        rest, held = count_in(answer.prompt_n), count_in(answer.cache_n)
        if rest is not None and held is not None:
            prompt, cached = rest + held, held
    output: int | None = None
    for value in (answer.completion_tokens, answer.output_tokens, answer.predicted_n):
        if output is None:
            output = count_in(value)
    # The total is a lower limit: some providers count reasoning only in it.
    total = count_in(answer.total_tokens) or 0
    if prompt is None and total:
        prompt = max(0, total - (output or 0))
    elif prompt is not None and total > prompt + (output or 0):
        output = total - prompt
    if prompt is None and output is None:
        return None
    if cached is not None and (prompt is None or cached > prompt):
        cached = None
    return Usage(prompt, output, cached, prompt is not None)


class BodyEnd:
    """Finds the counts in a body that is relayed in pieces and is not an event stream."""

    __slots__ = ("_end", "_is_native", "_numbers", "_scan", "lines")

    def __init__(self, path: bytes = b"") -> None:
        """`path`: the path of the request."""
        self._end = b""
        self._numbers = Numbers()
        # Finds the answer's own `usage`; `None`: the counts are searched by their names.
        self._scan = MemberScan(_USAGE) if path == RESPONSES_PATH else None
        self._is_native = path in COUNTS_NATIVELY
        self.lines = 0  # The number of complete lines of JSON so far.

    def feed(self, data: bytes) -> bytes:
        if self._scan is not None:
            self._scan.feed(data)
            return data
        self._end = data[-TAIL:] if len(data) >= TAIL else (self._end + data)[-TAIL:]
        self._numbers.feed(data)
        # Most large answers have no line end. The search for one takes 2 % of the time that
        # counting takes.
        if b"\n" in data:
            self.lines += data.count(b"}\n")
        return data

    def result(self, is_whole: bool) -> Usage:
        if not is_whole:
            return UNKNOWN
        scan = self._scan
        if scan is not None:
            own = scan.members.get("usage", b"") if scan.is_whole else b""
            return counts_of(own) or UNKNOWN
        last = b"" if self._is_native else last_object(self._end)
        return (counts_of(last) if last else usage_of_numbers(self._numbers)) or UNKNOWN
