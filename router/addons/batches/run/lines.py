"""Splits a batch file (JSONL) into lines, and checks which lines are valid requests.

A file is read in pieces of `PIECE` bytes and is never completely in memory; `validate` yields after
each piece. A line is a JSON object with `custom_id`, `method`, `url` and `body`. A blank line is
not a request, but it counts in the numbering of lines (from 1), as in an editor.

Must never: change a body. The only exception is a client's `priority`, which is removed because a
batch is not urgent.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from hashlib import blake2b
from time import sleep
from typing import Final, NamedTuple, Protocol

import msgspec

from router.core.unreadable import NOT_JSON
from router.intake.members import MemberScan, without_members

PIECE: Final = 64 * 1024
SHORT: Final = 256 * 1024  # maximum bytes of a body whose members are all decoded, in 20 ms
CUSTOM_ID_CHARS: Final = 512
ERRORS_MAX: Final = 50  # maximum number of errors reported per file; each line may have one
_BLANK: Final = b" \t\r\n"
_BOM: Final = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """One request of a batch: a line of its file."""

    number: int  # the number of the line in the file, from 1
    custom_id: str
    model: str  # "" if the body names no model
    body: bytes


class LineError(msgspec.Struct, frozen=True):
    """One error in a batch file, as it appears in the `errors` of a batch."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class Unusable(Exception):
    """A line of a batch file is not a valid request."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param


class _Request(msgspec.Struct):
    custom_id: str
    method: str
    url: str
    body: msgspec.Raw


_NONE: Final = msgspec.Raw()


class _Body(msgspec.Struct):
    """The members of a body that are read. All others are skipped.

    A decoder holds the interpreter's lock, and so blocks the event loop. Objects for each of a
    million members would take a second.
    """

    model: msgspec.Raw = _NONE
    stream: msgspec.Raw = _NONE
    priority: msgspec.Raw = _NONE


_decode = msgspec.json.Decoder(_Request).decode
_decode_any = msgspec.json.Decoder(msgspec.Raw).decode
_decode_body = msgspec.json.Decoder(_Body).decode
_decode_names = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Readable(Protocol):
    def read(self, size: int) -> bytes:
        """Return the next bytes; an empty result means the end of the file. Raises OSError."""


class Cutter:
    """Splits a file into lines, and keeps the position in the file."""

    def __init__(self, file: Readable, longest: int) -> None:
        self._file = file
        self._longest = longest
        # The pieces of a line that has not ended. They are joined once, so a long line is copied
        # only once.
        self._rest: list[bytes] = []
        self._rest_bytes = 0  # the total size of the pieces in `_rest`
        self.number = 0  # the number of the last line that was returned
        self.is_over = False

    def take(self) -> Iterator[tuple[int, bytes]]:
        """Reads one piece. Yields each line that ends in the piece, with its number.

        Blank lines are skipped. Raises Unusable for a line that is too long, and OSError.
        """
        for line in self._cut(self._file.read(PIECE)):
            self.number += 1
            if len(line) > self._longest:
                self._refuse()
            if self.number == 1 and line.startswith(_BOM):
                line = line[len(_BOM) :]
            if line.strip(_BLANK):
                yield self.number, line
        if self._rest_bytes > self._longest:
            self.number += 1
            self._refuse()

    def _cut(self, piece: bytes) -> list[bytes]:
        """Return the lines that end in `piece`. An empty piece ends the file and its last line."""
        if not piece:
            self.is_over = True
            last = b"".join(self._rest)
            self._rest, self._rest_bytes = [], 0
            return [last] if last else []
        found = piece.split(b"\n")
        rest = found.pop()
        if found:
            found[0] = b"".join([*self._rest, found[0]])
            self._rest, self._rest_bytes = [], 0
        self._rest.append(rest)
        self._rest_bytes += len(rest)
        return found

    def _refuse(self) -> None:
        raise Unusable("line_too_long", f"This line is over {self._longest} bytes.")


def parse(number: int, raw: bytes, endpoint: str) -> Line:
    """Parses one line as a request to `endpoint`. Raises Unusable, with OpenAI's error code."""
    try:
        found = _decode(raw)
    except msgspec.ValidationError as err:
        raise (_misfit(err) if is_json(raw) else _no_json()) from None
    except NOT_JSON:
        raise _no_json() from None
    if not found.custom_id or len(found.custom_id) > CUSTOM_ID_CHARS:
        raise Unusable(
            "invalid_custom_id",
            f"The custom_id must be 1 to {CUSTOM_ID_CHARS} characters long.",
            "custom_id",
        )
    if found.method != "POST":
        raise Unusable("invalid_method", "The method of every line must be POST.", "method")
    if found.url != endpoint:
        raise Unusable(
            "invalid_url",
            "The URL provided for this request does not match the batch endpoint.",
            "url",
        )
    sleep(0)  # Lets the event loop run: each decoder holds the lock for up to 35 ms.
    body = bytes(found.body)
    try:
        fields = _decode_body(body)
        sleep(0)
        if len(body) <= SHORT and not body.isascii():
            _decode_names(body)  # The name of a member that is skipped must be text, too.
    except NOT_JSON:
        raise Unusable("invalid_body", "The body must be a JSON object.", "body") from None
    if bytes(fields.stream) not in (b"", b"false", b"null"):
        raise Unusable("stream_not_supported", "A batch line cannot be a stream.", "body.stream")
    if bytes(fields.priority):
        body = _without_priority(body)
    return Line(number, found.custom_id, _model(fields.model), body)


def _without_priority(body: bytes) -> bytes:
    """Return a JSON object without its members `priority`. Raises Unusable."""
    scan = MemberScan(("priority",))
    for at in range(0, len(body), PIECE):  # the compiled scan holds the interpreter's lock
        scan.feed(body[at : at + PIECE])
    if not scan.is_whole:
        raise Unusable("invalid_body", f"The body cannot be read: {scan.problem}.", "body")
    return b"".join(without_members(body, scan.places))


def _no_json() -> Unusable:
    return Unusable("invalid_json_line", "This line is not parseable as valid JSON.")


def is_json(data: bytes) -> bool:
    """Return whether `data` is valid JSON."""
    try:
        _decode_any(data)
    except NOT_JSON:
        return False
    return True


def _model(field: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(field, type=str)[:256]
    except NOT_JSON:
        return ""  # missing, or the router's response to this request will state the error


def _misfit(err: msgspec.ValidationError) -> Unusable:
    text = str(err)
    field = text.partition("`$.")[2].rstrip("`")
    if "missing required field" in text:
        field = text.partition("field `")[2].partition("`")[0]
        return Unusable(
            "missing_required_parameter", f"Missing required parameter: '{field}'.", field
        )
    return Unusable("invalid_type", f"{text}.", field or None)


class Validated(NamedTuple):
    requests: int
    errors: list[LineError]


def validate(
    file: Readable, endpoint: str, most: int, longest: int
) -> Generator[None, None, Validated]:
    """Validates a whole batch file: counts its requests and collects its first errors.

    The file may have `most` lines of `longest` bytes each. Each custom_id must be unique. Memory:
    one line, and a hash of 16 bytes per custom_id. Raises OSError.
    """
    cutter = Cutter(file, longest)
    seen: set[bytes] = set()
    errors: list[LineError] = []
    count = 0
    while not cutter.is_over and len(errors) < ERRORS_MAX:
        try:
            for number, raw in cutter.take():
                count += 1
                if count > most:
                    message = f"The file has over {most} requests."
                    errors.append(LineError("too_many_requests", message))
                    return Validated(count, errors)
                try:
                    line = parse(number, raw, endpoint)
                    key = blake2b(line.custom_id.encode(), digest_size=16).digest()
                    if key in seen:
                        message = f"The custom_id '{line.custom_id[:64]}' is used twice."
                        raise Unusable("duplicate_custom_id", message, "custom_id")
                    seen.add(key)
                except Unusable as err:
                    if len(errors) < ERRORS_MAX:
                        errors.append(LineError(err.code, err.message, number, err.param))
        except Unusable as err:  # a line is too long, so the rest of the file is not read
            errors.append(LineError(err.code, err.message, cutter.number, err.param))
            break
        yield
    if not count and not errors:
        errors.append(LineError("empty_file", "The input file holds no requests."))
    return Validated(count, errors)
