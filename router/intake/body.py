"""Reads the members of a request body that routing needs. The other members are not decoded.

The router refuses a body that it cannot route: bytes that are not JSON where JSON is required, or a
`model` that is not a usable name. It also refuses members that only a router may set
(`private_members`). A member of an unexpected type counts as unknown, and the engine decides
whether to refuse the request. A body that could not be read at all results in `Unread`. Such a body
is forwarded, unless a limit depends on its content, or it may contain a private member. Encoded
bodies were decoded before (`wire/http1/body_decoder`), except those of unknown paths.

The size of a JSON body decides how it is read, because no body may block the event loop for long:

- Up to `DECODE_UP_TO` bytes, one decoder reads the wanted members. If a member has an unexpected
  type, all members are read one by one. This costs 80 ns of CPU time and 20 bytes of memory for
  each byte of the body. So above `EACH_UP_TO` bytes, only the positions of the members are
  searched. The same is done for a body that only Python's parser accepts.
- Above `DECODE_UP_TO` bytes, the positions of the members are found while the body arrives
  (`members`). The content of a value is not validated. A long prompt is not copied (`stretch`).
- Above `SCAN_ABOVE` bytes, prompts are not read either, and the body is not edited.

Forms of any size are scanned while they arrive (`forms`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

import msgspec

from router.core.errors import Reason, RouterError
from router.core.flags import flag_of
from router.core.text.beginning import is_text
from router.core.unreadable import NOT_JSON
from router.intake.fields import Fields, Unread, fields_of
from router.intake.forms import FormScan, read_form
from router.intake.members import LargeBody, MemberScan, Place
from router.intake.private_members import DEFAULT, WANTED, MemberRules
from router.intake.routes import ANY, MULTIPART, Route
from router.intake.stretch import Stretch
from router.intake.values import value_of

SCAN_ABOVE: Final = 8 * 1024 * 1024
# Maximum bytes of a body that one decoder reads, which takes about 14 ms for many short members.
DECODE_UP_TO: Final = 1024 * 1024
# Maximum bytes of a body of which every member may be decoded, which takes about 40 ms.
EACH_UP_TO: Final = 512 * 1024
_LONG: Final = 64 * 1024  # in a large body, a prompt of more than this many bytes is not copied
# Maximum characters of a model name. The names of OpenAI and Hugging Face are far shorter.
MAX_MODEL: Final = 256


_PROMPTS: Final = ("messages", "prompt", "input", "instructions", "system", "tools")
_RAWS: Final = (
    "cache_salt",
    "session_id",
    "prompt_cache_key",
    "user",
    "metadata",
    "priority",
    "service_tier",
    "stream_options",
    "rid",
    "request_id",
    "lora",
    "lora_path",
    "lora_request",
    "parameters",
    "background",
)
_OPENINGS: Final = (b'"', b"[", b"{")  # first bytes of a JSON string, list or object
_COUNTS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens", "n")

_LONG_NUMBER: Final = 64  # maximum characters of a text that is read as a number

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read_fields(
    route: Route,
    body: list[bytes],
    size: int,
    content_type: bytes | None,
    content_encoding: bytes | None,
    large: LargeBody | FormScan | None = None,
    rules: MemberRules = DEFAULT,
) -> Fields:
    """Return the fields of a request body. `body`: its pieces, of `size` bytes in total. `large`:
    the result of `watch` if the body was scanned while it arrived. `rules`: the members that the
    body must not have.

    Raises RouterError (BAD_JSON, BAD_MULTIPART, BAD_MODEL, PRIVATE_MEMBER, UNREAD_BODY).
    """
    if content_encoding is not None and content_encoding != b"identity" and not is_text(body):
        return Unread(why="its Content-Encoding is not supported")
    if not size and route.body == ANY:
        return Fields()
    try:
        fields = _read(route, body, size, content_type, large, rules)
    except RouterError as err:
        if route.body != ANY or err.reason in _FINAL:
            raise
        # The path is unknown: the model is read if the body has one, and the engine validates the
        # body.
        fields = Unread(why=err.message)
    if type(fields) is Unread:
        _check_unread(body, size, fields, rules)
        return fields
    parameters = fields.other("parameters")
    if parameters is not None:
        raw = bytes(parameters)
        rules.check_nest("parameters", Stretch([raw], 0, len(raw)))
    return fields


def _check_unread(body: list[bytes], size: int, fields: Unread, rules: MemberRules) -> None:
    """Refuses a body that was not read, but in which an engine may read a private member."""
    if size <= DECODE_UP_TO:
        rules.check_text(b"".join(body))
    elif is_text(body) and not fields.is_scanned:
        raise RouterError(Reason.UNREAD_BODY, f"the body cannot be read: {fields.why}")


def may_be_large(size: int | None) -> bool:
    """Return whether to scan a body of `size` bytes while it arrives. None: unknown size."""
    return size is None or size > DECODE_UP_TO


def watch(route: Route, size: int | None, content_type: bytes | None) -> LargeBody | FormScan:
    """Return the scanner for a body that may be large. Its `feed` gets the pieces of the body."""
    if _has_form(route, content_type):
        return FormScan(content_type or b"", _WANTED)
    return LargeBody(_ALL_MEMBERS, is_large=size is not None)


def places_of(large: object, size: int) -> list[Place] | None:
    """Return the positions of the wanted members of a body of `size` bytes.

    Returns None if no valid scan exists. `large`: the result of `watch` if the body was scanned
    while it arrived.
    """
    if isinstance(large, LargeBody) and size > DECODE_UP_TO and large.scan.is_whole:
        return large.scan.places
    return None


def _read(
    route: Route,
    body: list[bytes],
    size: int,
    content_type: bytes | None,
    large: LargeBody | FormScan | None,
    rules: MemberRules,
) -> Fields:
    if _has_form(route, content_type):
        if isinstance(large, FormScan):
            fields = _from_form(large.fields(), rules)
        else:
            fields = _from_form(read_form(body, content_type or b"", _WANTED), rules)
    elif size > DECODE_UP_TO:
        fields = _from_scanned(body, size, large, rules)
    elif not size:
        raise RouterError(Reason.BAD_JSON, "the body is empty; a JSON object is required")
    else:
        raw = body[0] if len(body) == 1 else b"".join(body)
        fields = _from_json(raw, rules)
    model = fields.model
    if model is not None and len(model) > MAX_MODEL:
        raise _long_model()
    if model == "":
        raise RouterError(Reason.BAD_MODEL, "`model` is empty", param="model")
    return fields


def is_form(content_type: bytes | None) -> bool:
    return content_type is not None and content_type[:9].lower() == b"multipart"


def _has_form(route: Route, content_type: bytes | None) -> bool:
    """Return whether the body is read as a form."""
    return route.body == MULTIPART or (route.body == ANY and is_form(content_type))


def _from_json(raw: bytes, rules: MemberRules) -> Fields:
    try:
        fields = fields_of(rules.decode(raw))
    except msgspec.ValidationError:
        if len(raw) <= EACH_UP_TO:
            return _tolerant(raw, rules)
        return _scanned([raw], _scan([raw], _ALL_MEMBERS), rules)
    except NOT_JSON as err:
        return _lenient(raw, rules, err)
    if fields.priority is not None and len(raw) > EACH_UP_TO:
        # Without a whole scan the priority could not be removed from the body, so it is refused.
        _whole(_scan([raw], _PRIORITY))
    return fields


def _lenient(raw: bytes, rules: MemberRules, err: Exception) -> Fields:
    """Reads a body that is not valid JSON, but that Python's parser accepts, as FastAPI does.

    Examples are NaN, Infinity and half a surrogate pair. The parser takes up to 30 ms per MiB.
    """
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        raise _bad_json(err) from None
    if not isinstance(found, dict):
        raise RouterError(Reason.BAD_JSON, "the body is not a JSON object")
    return _scanned([raw], _scan([raw], _ALL_MEMBERS), rules)


def _tolerant(raw: bytes, rules: MemberRules) -> Fields:
    """Reads each member separately, because a member has an unexpected type or is private."""
    try:
        members = _decode_members(raw)
    except msgspec.ValidationError:
        raise RouterError(Reason.BAD_JSON, "the body is not a JSON object") from None
    except NOT_JSON as err:
        return _lenient(raw, rules, err)
    return _of_members(members, raw, rules)


def _of_members(members: dict[str, msgspec.Raw], raw: bytes, rules: MemberRules) -> Fields:
    """Return the fields of the body `raw`, which has these members."""
    if not WANTED.isdisjoint(members):
        scan = _scan([raw], WANTED)  # finds all members of the same name
        _whole(scan)
        rules.check_places([raw], scan.places)
    fields = Fields()
    model = value_of(members.get("model"))
    if model is not None and not isinstance(model, str):
        raise RouterError(Reason.BAD_MODEL, "`model` must be a string", param="model")
    fields.model = model
    fields.stream = flag_of(value_of(members.get("stream")))
    previous = value_of(members.get("previous_response_id"))
    fields.previous_response_id = previous if isinstance(previous, str) else None
    for name in _COUNTS:
        fields.put(name, _count_of(members.get(name)))
    for name in _PROMPTS:  # a prompt is a string, a list or an object
        raw_member = members.get(name)
        if raw_member is not None and bytes(memoryview(raw_member)[:1]) in _OPENINGS:
            fields.put(name, raw_member)
    for name in _RAWS:
        fields.put(name, members.get(name))
    return fields


def _count_of(raw: msgspec.Raw | None) -> int | None:
    count = value_of(raw)
    if isinstance(count, str) and len(count) <= _LONG_NUMBER:
        try:
            count = float(count)  # engines convert a text, such as "100"
        except ValueError:
            return None
    if isinstance(count, float) and count.is_integer():
        return int(count)  # some clients write a whole number as a float, such as 100.0
    return count if isinstance(count, int) and not isinstance(count, bool) else None


def _scanned(body: list[bytes], scan: MemberScan, rules: MemberRules) -> Fields:
    """Return the fields of a large body, from the members that a scan has found.

    The scan does not validate the values that it does not decode; the engine does.
    """
    _whole(scan)
    rules.check_places(body, scan.places)
    _forget(scan, _RAW_MEMBERS)
    fields = _from_scan(scan, rules)
    last = {place.name: place for place in scan.places}
    for name in _RAW_MEMBERS:
        place = last.get(name)
        if place is not None:
            value = Stretch(body, 0, place.end).narrowed(place.value, place.end)
            is_prompt = name in _PROMPTS
            if is_prompt and value.cut(0, 1) not in _OPENINGS:
                fields.put(name, None)
            elif is_prompt and value.size > _LONG:
                fields.put(name, value)
            else:
                fields.put(name, msgspec.Raw(value.whole()))
    return fields


def _scan(pieces: list[bytes], wanted: frozenset[str]) -> MemberScan:
    scan = MemberScan(wanted)
    for piece in pieces:
        scan.feed(piece)
    return scan


def _whole(scan: MemberScan) -> None:
    """Raises RouterError (BAD_JSON) if the scan did not find exactly one object."""
    if not scan.is_whole:
        raise RouterError(Reason.BAD_JSON, f"the body cannot be read: {scan.problem}")


def _long_model() -> RouterError:
    words = f"`model` is over {MAX_MODEL} characters"
    return RouterError(Reason.BAD_MODEL, words, param="model")


def _bad_json(err: Exception) -> RouterError:
    return RouterError(Reason.BAD_JSON, f"the body is not JSON: {err}")


# -- bodies too large to decode at once ---------------------------------------------------------

_RAW_MEMBERS: Final = frozenset({*_PROMPTS, *_RAWS})
_ALL_MEMBERS: Final = frozenset(
    {"model", "stream", "previous_response_id", *_COUNTS, *_RAW_MEMBERS, *WANTED}
)
_PRIORITY: Final = frozenset({"priority"})
_CHECKED: Final = WANTED - _RAW_MEMBERS  # members that are only checked
_FINAL: Final = (Reason.PRIVATE_MEMBER, Reason.UNREAD_BODY)


def _from_scanned(
    body: list[bytes], size: int, large: LargeBody | FormScan | None, rules: MemberRules
) -> Fields:
    scan = large.scan if isinstance(large, LargeBody) else _scan(body, _ALL_MEMBERS)
    if size <= SCAN_ABOVE:
        return _scanned(body, scan, rules)
    if not scan.is_whole:
        return Unread(why=scan.problem)
    rules.check_places(body, scan.places)
    _forget(scan, _PROMPTS)
    return _from_scan(scan, rules)


def _forget(scan: MemberScan, names: Iterable[str]) -> None:
    """Drops the values of members that are not decoded together with the others."""
    for name in (*names, *_CHECKED):
        scan.members.pop(name, None)
        scan.long.pop(name, None)


def _from_scan(scan: MemberScan, rules: MemberRules) -> Fields:
    if "model" in scan.long:
        raise _long_model()
    if scan.long:
        return Unread(why=f"`{next(iter(scan.long))}` is too long", is_scanned=True)
    text = _object_of(scan.members)
    try:
        return fields_of(rules.decode(text))
    except NOT_JSON:
        pass
    # A value that is no valid JSON counts as unknown, and the engine decides about it.
    usable = {
        name: raw for name, raw in scan.members.items() if value_of(msgspec.Raw(raw)) is not ...
    }
    if "model" in scan.members and "model" not in usable:
        raise RouterError(Reason.BAD_MODEL, "`model` must be a string", param="model")
    text = _object_of(usable)
    return _of_members(_decode_members(text), text, rules)


def _object_of(members: dict[str, bytes]) -> bytes:
    return b"{%b}" % b",".join([b'"%b":%b' % (n.encode(), raw) for n, raw in members.items()])


# -- forms --------------------------------------------------------------------------------------

_WANTED: Final = frozenset(
    [b"model", b"stream", b"priority", b"lora", b"lora_path", *[name.encode() for name in WANTED]]
)


def _from_form(found: dict[bytes, bytes], rules: MemberRules) -> Fields:
    """Return the fields that are supported in forms. Every value of a form is a text."""
    rules.check_form(found)
    fields = Fields()
    for name in ("priority", "lora", "lora_path"):
        fields.put(name, _text(found.get(name.encode())))
    model = found.get(b"model")
    if model is not None:
        fields.model = model.decode("utf-8", "replace").strip() or None
    stream = found.get(b"stream")
    if stream is not None:
        fields.stream = flag_of(stream.decode("latin-1").strip())
    return fields


def _text(value: bytes | None) -> msgspec.Raw | None:
    """Return the value of a form's field as a JSON string."""
    if value is None:
        return None
    return msgspec.Raw(msgspec.json.encode(value.decode("utf-8", "replace")))
