"""Rules that hold for any bytes. A target takes bytes and fails if a rule is broken.

Each reader may refuse with its own error and nothing else, and its result does not depend on how
the bytes were cut. The first two bytes of an input determine the cuts.
"""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import msgspec

from router.config.model import Limits
from router.core.errors import Reason, RouterError
from router.core.unreadable import NOT_JSON
from router.dispatch.usage.usage_tap import UsageTap
from router.intake import routes
from router.intake.body import read_fields, watch
from router.intake.fields import Fields, Unread
from router.intake.forms import read_form
from router.intake.members import MemberScan
from tests.intake.members import found as found_in
from tests.wire.http1.test_request_reader import read as read_requests
from tests.wire.http1.test_response_reader import read as read_response

Target = Callable[[bytes], None]
TARGETS: dict[str, Target] = {}

_LIMITS = Limits(head=4096, body=65_536, response_head=4096)
_WANTED = frozenset({"model", "stream", "priority", "n"})


def target(work: Target) -> Target:
    TARGETS[work.__name__] = work
    return work


def cut(data: bytes) -> tuple[bytes, list[bytes]]:
    """The bytes after the first two, whole and in the pieces given by those two."""
    rest = data[2:]
    if len(data) < 2 or not data[0]:
        return rest, [rest[at : at + 1] for at in range(len(rest))]
    ends = sorted({0, len(rest), *(n * data[1] % (len(rest) + 1) for n in range(1, data[0] % 8))})
    return rest, [rest[start:end] for start, end in pairwise(ends)]


# -- the wire -------------------------------------------------------------------------------------


@target
def request(data: bytes) -> None:
    """Bytes of a client: the same requests for all cuts."""
    whole, pieces = cut(data)
    told, again = _requests([whole]), _requests(pieces)
    assert told == again, (told, again)


def _requests(pieces: list[bytes]) -> list[Any]:
    """The first reason of a refusal may depend on the bytes read so far."""
    story = read_requests(pieces, _LIMITS)
    return [*story[:-1], "refused" if isinstance(story[-1], Reason) else story[-1]]


@target
def response(data: bytes) -> None:
    """Bytes of a replica: the same response for all cuts, until the connection ends."""
    whole, pieces = cut(data)
    for for_head, eof in product((False, True), repeat=2):
        told, again = (
            read_response(given, for_head=for_head, limits=_LIMITS, eof=eof)
            for given in ([whole], pieces)
        )
        assert told == again, (told, again)


# -- bodies ---------------------------------------------------------------------------------------

_ROUTES = (
    (b"POST", b"/v1/chat/completions"),
    (b"POST", b"/v1/audio/transcriptions"),
    (b"POST", b"/unknown"),
)


@target
def body(data: bytes) -> None:
    """A body on each kind of route: fields, or a refusal; never another error."""
    whole, pieces = cut(data)
    for method, path in _ROUTES:
        route, _ = routes.classify(method, path, frozenset())
        for kind in (b"application/json", b"multipart/form-data; boundary=b", None):
            stories = []
            for given in ([whole], pieces):
                try:
                    stories.append(read_fields(route, given, len(whole), kind, None))
                except RouterError as err:
                    stories.append((err.reason, err.message))
            assert _plain(stories[0]) == _plain(stories[1]), stories
            watcher = watch(route, None, kind)
            for piece in pieces:
                watcher.feed(piece)


def _plain(found: Any) -> Any:
    if isinstance(found, Unread):
        return found.why
    return found_in(found) if isinstance(found, Fields) else found


@target
def members(data: bytes) -> None:
    """The scan of a large object finds what a decoder finds, for all cuts."""
    whole, pieces = cut(data)
    one, many = MemberScan(_WANTED), MemberScan(_WANTED)
    one.feed(whole)
    for piece in pieces:
        many.feed(piece)
    assert (one.is_whole, one.members, list(one.long)) == (
        many.is_whole,
        many.members,
        list(many.long),
    )
    try:
        value = msgspec.json.decode(whole, type=dict[str, msgspec.Raw])
    except NOT_JSON:
        return
    assert one.is_whole
    for name in _WANTED:
        if name not in value:
            assert name not in one.members
        elif name in one.members:
            assert one.members[name] == bytes(value[name]).strip(b" \t\r\n")
        else:
            assert name in one.long


@target
def form(data: bytes) -> None:
    """A form: its fields, or a refusal; the same for all cuts."""
    kind, _, content = data.partition(b"\n")
    told, again = _form([content], kind), _form(cut(b"\x05\x11" + content)[1], kind)
    assert told == again == _form(cut(b"\0\0" + content)[1], kind), (told, again)
    if isinstance(told, str):
        return
    for name, value in told.items():
        assert name in (b"model", b"stream")
        assert value in content


def _form(pieces: list[bytes], kind: bytes) -> dict[bytes, bytes] | str:
    try:
        return read_form(pieces, kind, {b"model", b"stream"})
    except RouterError as err:
        return err.message


# -- streams --------------------------------------------------------------------------------------


@target
def stream(data: bytes) -> None:
    """A replica's events: relayed unchanged, or without the usage; the same for all cuts."""
    whole, pieces = cut(data)
    if not whole:
        return
    for given in ([whole], pieces):
        relayed, tap = _relayed(given, takes_out=False)
        assert relayed == whole
        assert tap.events >= 0
    kept, again = (_relayed(given, takes_out=True)[0] for given in ([whole], pieces))
    assert kept == again, (kept, again)
    came, went = _events(whole), _events(kept)
    # The event with the finish reason may get the fingerprint of the removed event.
    for event in came - went:
        assert _only_tells_usage(event) or b'"finish_reason"' in event, event
    for event in went - came:
        assert b'"system_fingerprint"' in event, event


def _only_tells_usage(event: bytes) -> bool:
    data = b"\n".join(line[5:] for line in event.split(b"\n") if line.startswith(b"data:"))
    value = msgspec.json.decode(data)
    return isinstance(value["usage"], dict) and value["choices"] == []


def _events(data: bytes) -> Counter[bytes]:
    """The events of a stream, with any line ends. Empty lines alone are not an event."""
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events = [event.strip(b"\n") for event in lines.split(b"\n\n")]
    return Counter(event for event in events if event)


def _relayed(pieces: list[bytes], *, takes_out: bool) -> tuple[bytes, UsageTap]:
    tap = UsageTap(takes_out=takes_out)
    out = b"".join([tap.feed(piece) for piece in pieces if piece])
    out += tap.flush()
    tap.result(True)
    return out, tap
