"""Parses an uploaded form (RFC 7578) from pieces of any size into text fields and one file's bytes.

The parser of python-multipart finds the parts of the form; this module limits them. That parser is
written in Python: a byte near a delimiter costs up to 0.8 us, but a byte of a file at most 0.01 us.
So at most `SLACK` bytes of a form may be outside its file, and a file must not contain the
delimiter.
"""

from __future__ import annotations

import logging
from typing import Final
from urllib.parse import unquote_to_bytes

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError

from router.addons.batches.api import asked
from router.addons.batches.api.asked import Refused
from router.core.errors import RouterError
from router.intake.forms import PLAIN, boundary_of, parameters

FIELD_MAX: Final = 1024  # maximum bytes of a form's text field
PARTS: Final = 32  # maximum number of parts per form
HEAD_LINES: Final = 16  # maximum number of header lines per part
# Maximum bytes of the header lines of a part. aiohttp, Apache and nginx limit a line to this size.
HEAD_LINE_BYTES: Final = 8190
# Maximum bytes of a form outside its file: preamble, header lines, text fields, epilogue.
SLACK: Final = 64 * 1024

# The parser would log a warning for each refused form, but the client already gets an error.
logging.getLogger("python_multipart").setLevel(logging.ERROR)


class Form:
    """A form that is being read. Call `feed` until the body ends, then `finish`.

    Call `take` repeatedly, and once after `finish`, to get the bytes of the file. All three methods
    raise Refused.
    """

    def __init__(self, content_type: bytes) -> None:
        try:
            kind, _ = parameters(content_type)
            if kind.lower() != b"multipart/form-data":
                raise _bad("A file must be sent as multipart/form-data.")
            boundary = boundary_of(content_type)
        except RouterError as err:
            raise _unreadable(err) from None
        self._delimiter_bytes = len(boundary) + 4
        self._parts = parts = _Parts(b"\r\n--" + boundary)
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": parts.begin,
                "on_header_field": parts.add_header_field,
                "on_header_value": parts.add_header_value,
                "on_header_end": parts.end_header,
                "on_headers_finished": parts.end_head,
                "on_part_data": parts.add_data,
                "on_part_end": parts.end,
                "on_end": parts.end_form,
            },
            max_header_count=HEAD_LINES,
            max_header_size=HEAD_LINE_BYTES,
        )
        self._bytes = 0

    @property
    def fields(self) -> dict[str, str]:
        """The text fields that were read so far."""
        return self._parts.fields

    @property
    def filename(self) -> str | None:
        """The name of the file that the form states; None if no file has begun."""
        return self._parts.filename

    @property
    def held(self) -> int:
        """The number of bytes of the file that were read and not yet taken."""
        return len(self._parts.file)

    def feed(self, piece: bytes) -> None:
        """Reads the next bytes of the form."""
        self._bytes += len(piece)
        try:
            self._parser.write(piece)
        except (FormParserError, RouterError) as err:
            raise _unreadable(err) from None
        if self._bytes - self._parts.file_bytes > SLACK + self._delimiter_bytes:
            raise _bad(f"The form has over {SLACK} bytes in addition to its file.")

    def finish(self) -> None:
        """Must be called when the body has ended. Raises Refused if the form is incomplete."""
        if not self._parts.is_whole:
            raise _bad("The form has no end: its last boundary is missing.")

    def take(self) -> bytearray:
        """Return the bytes of the file that were read so far, and remove them from the form.

        The last bytes of an unfinished form are kept, because they may belong to a delimiter.
        """
        parts = self._parts
        kept = 0 if parts.is_whole else self._delimiter_bytes
        end = max(0, len(parts.file) - kept)
        taken, parts.file = parts.file, parts.file[end:]
        del taken[end:]
        return taken


class _Parts:
    """Receives what the parser finds.

    It keeps the header lines and the text of only the part that is being read, and the bytes of the
    file that were not yet taken.
    """

    def __init__(self, delimiter: bytes) -> None:
        self.fields: dict[str, str] = {}
        self.filename: str | None = None
        self.file = bytearray()
        self.file_bytes = 0  # all bytes of the file so far, including bytes already taken
        self.is_whole = False
        self._delimiter = delimiter
        self._count = 0
        self._head: list[tuple[bytes, bytes]] = []
        self._header = bytearray()  # the name in the current header line
        self._value = bytearray()  # the value in the current header line
        self._name = ""  # field name of the current part
        self._is_file = False
        self._text = bytearray()

    def begin(self) -> None:
        self._count += 1
        if self._count > PARTS:
            raise _bad(f"The form has more than {PARTS} parts.")
        self._head = []
        self._text.clear()

    def add_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def add_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def end_header(self) -> None:
        self._head.append((bytes(self._header).lower(), bytes(self._value)))
        self._header.clear()
        self._value.clear()

    def end_head(self) -> None:
        self._name, filename = read_head(self._head)
        self._is_file = self._name == "file"
        if self._is_file:
            if self.filename is not None:
                raise _bad("The form has more than one file.", "file")
            self.filename = asked.filename_of(filename)

    def add_data(self, data: bytes, start: int, end: int) -> None:
        if not self._is_file:
            if len(self._text) + end - start > FIELD_MAX:
                raise _bad(f"The form's field {self._name[:64]} is too long.")
            self._text += data[start:end]
            return
        begin = max(0, len(self.file) - len(self._delimiter))
        self.file += data[start:end]
        self.file_bytes += end - start
        # If a delimiter is not followed by a line break, the parser slowly reports the delimiter as
        # data of the part. RFC 2046 section 5.1.1 does not allow a delimiter in a part.
        if self.file.find(self._delimiter, begin) >= 0:
            raise _bad("The file has a line that begins with the form's boundary.", "file")

    def end(self) -> None:
        if not self._is_file:
            if self._delimiter in self._text:
                raise _bad("A field has a line that begins with the form's boundary.")
            self.fields[self._name] = self._text.decode("utf-8", "replace")

    def end_form(self) -> None:
        self.is_whole = True


def read_head(lines: list[tuple[bytes, bytes]]) -> tuple[str, str]:
    """Return the field name of a part, and the name of its file, from the part's header lines.

    `lines` has the name, in lower case, and the value of each header line.

    Raises Refused, and RouterError for an unreadable Content-Disposition.
    """
    given: dict[bytes, bytes] | None = None
    for name, value in lines:
        if name == b"content-encoding" or (
            name == b"content-transfer-encoding" and value.strip().lower() not in PLAIN
        ):
            raise _bad("The parts of the form must not be encoded.")
        if name == b"content-disposition":
            if given is not None:
                raise _bad("A part of the form has two names.")
            _, given = parameters(value)
    if given is None or b"name" not in given:
        raise _bad("The form has a part without a name.")
    filename = given.get(b"filename", b"")
    if b"filename*" in given:  # the encoded form of RFC 8187, which urllib3 1 sends
        filename = unquote_to_bytes(given[b"filename*"].split(b"'", 2)[-1])
    return given[b"name"].decode("utf-8", "replace"), filename.decode("utf-8", "replace")


def _unreadable(err: Exception) -> Refused:
    return _bad(f"The form cannot be read: {str(err)[:200]}.")


def _bad(message: str, param: str | None = None) -> Refused:
    return Refused(400, "bad_multipart", message, param)
