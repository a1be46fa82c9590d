"""JSONL: lines from pieces of any size, and every kind of invalid line."""

import io
import json
from typing import Any

import pytest

from router.addons.batches.run import lines as module
from router.addons.batches.run.lines import (
    PIECE,
    Cutter,
    Line,
    Unusable,
    Validated,
    parse,
    validate,
)
from tests.addons.batches.lines import CHAT, jsonl, line

LONGEST = 300


def judged(data: bytes, most: int = 100) -> Validated:
    work = validate(io.BytesIO(data), CHAT, most, LONGEST)
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: Validated = end.value
            return found


class Drips:
    """A file that returns a few bytes per read, for any requested size."""

    def __init__(self, data: bytes, size: int) -> None:
        self._file = io.BytesIO(data)
        self._size = size

    def read(self, size: int) -> bytes:
        return self._file.read(min(size, self._size))


def cut(data: bytes, size: int) -> list[tuple[int, bytes]]:
    cutter = Cutter(Drips(data, size), LONGEST)
    found: list[tuple[int, bytes]] = []
    while not cutter.is_over:
        found += cutter.take()
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_lines_are_cut_and_numbered_as_an_editor_does(size: int) -> None:
    data = b"\xef\xbb\xbfone\n\n  \t\r\ntwo\r\n\nthree"
    assert cut(data, size) == [(1, b"one"), (4, b"two\r"), (6, b"three")]
    assert cut(b"", size) == []
    assert cut(b"\n", size) == []
    assert cut(b"a\n", size) == [(1, b"a")]


@pytest.mark.parametrize("size", [1, 64, 100_000])
def test_a_line_that_is_too_long_is_not_held(size: int) -> None:
    cutter = Cutter(Drips(b"ok\n" + b"x" * 10_000, size), LONGEST)
    with pytest.raises(Unusable) as err:
        while not cutter.is_over:
            list(cutter.take())
    assert (err.value.code, cutter.number) == ("line_too_long", 2)


def test_a_request_keeps_its_body_to_the_byte() -> None:
    body = b'{ "model" : "m",\t"seed": 1e400, "x": [1.0, "\\u00e9"] }'
    raw = b'{"custom_id":"a","method":"POST","url":"%b","body":%b}' % (CHAT.encode(), body)
    assert parse(3, raw, CHAT) == Line(3, "a", "m", body)


@pytest.mark.parametrize("priority", ["critical", 0, None, {"a": 1}])
def test_a_priority_of_its_own_is_taken_out(priority: Any) -> None:
    raw = json.dumps(line("a", priority=priority, top_p=0.1)).encode()
    assert json.loads(parse(1, raw, CHAT).body) == line("a", top_p=0.1)["body"]
    escaped = raw.replace(b'"priority"', b'"pri\\u006frity"')
    assert json.loads(parse(1, escaped, CHAT).body) == line("a", top_p=0.1)["body"]


@pytest.mark.parametrize(
    ("members", "code"),
    [
        (b'"n":1,' * 1_000_000 + b'"n":1', None),
        (b'"priority":1,' + b'"n":1,' * 200_000 + b'"n":1', "invalid_body"),
        (b'"priority":1,"x":[' + b"[]," * 200_000 + b"1]", None),
        (b'"x":{' + b'"priority":1,' * 20_000 + b'"n":1}', None),
    ],
)
def test_a_body_of_many_members_is_not_decoded(members: bytes, code: str | None) -> None:
    body = b'{"model":"m",' + members + b"}"
    raw = b'{"custom_id":"a","method":"POST","url":"%b","body":%b}' % (CHAT.encode(), body)
    if code is None:
        assert parse(1, raw, CHAT).model == "m"
    else:
        with pytest.raises(Unusable) as err:
            parse(1, raw, CHAT)
        assert (err.value.code, err.value.param) == (code, "body")


def changed(**fields: Any) -> dict[str, Any]:
    return {**line("a"), **fields}


def without(field: str) -> dict[str, Any]:
    return {name: value for name, value in line("a").items() if name != field}


@pytest.mark.parametrize(
    ("bad", "code", "param"),
    [
        (b"{", "invalid_json_line", None),
        (b'{"custom_id": "a"} trailing', "invalid_json_line", None),
        (b"\xff\xfe{\x00}\x00", "invalid_json_line", None),
        (b"[" * 200, "invalid_json_line", None),
        (b'{"custom_id": "\xff", "method": "POST"}', "invalid_json_line", None),
        (b'{"custom_id": "a", "\xff": 1}', "missing_required_parameter", "method"),
        (b"[]", "invalid_type", None),
        (b"null", "invalid_type", None),
        (without("custom_id"), "missing_required_parameter", "custom_id"),
        (without("method"), "missing_required_parameter", "method"),
        (without("url"), "missing_required_parameter", "url"),
        (without("body"), "missing_required_parameter", "body"),
        (changed(custom_id=7), "invalid_type", "custom_id"),
        (changed(custom_id=""), "invalid_custom_id", "custom_id"),
        (changed(method="GET"), "invalid_method", "method"),
        (changed(url="/v1/embeddings"), "invalid_url", "url"),
        (changed(url="http://elsewhere" + CHAT), "invalid_url", "url"),
        (changed(body=[]), "invalid_body", "body"),
        (changed(body="{}"), "invalid_body", "body"),
        (changed(body=None), "invalid_body", "body"),
        (line("a", stream=True), "stream_not_supported", "body.stream"),
    ],
)
def test_what_is_no_request(bad: Any, code: str, param: str | None) -> None:
    found = judged(jsonl(line("first"), bad, line("last")))
    assert [(e.code, e.line, e.param) for e in found.errors] == [(code, 2, param)]
    assert found.requests == 3


def test_a_custom_id_is_used_once() -> None:
    found = judged(jsonl(line("a"), line("b"), b"", line("a")))
    assert [(e.code, e.line) for e in found.errors] == [("duplicate_custom_id", 4)]


@pytest.mark.parametrize("empty", [b"", b"\n\n", b"\xef\xbb\xbf\n", b" \t\r\n"])
def test_a_file_without_requests(empty: bytes) -> None:
    assert [e.code for e in judged(empty).errors] == ["empty_file"]


def test_too_many_requests() -> None:
    at_limit = [line(f"r{n}") for n in range(5)]
    assert judged(jsonl(*at_limit), most=5) == Validated(5, [])
    found = judged(jsonl(*at_limit, line("more")), most=5)
    assert [e.code for e in found.errors] == ["too_many_requests"]


def test_a_file_of_garbage_is_not_complained_about_for_ever() -> None:
    found = judged(b"garbage\n" * 10_000, most=100_000)
    assert len(found.errors) == module.ERRORS_MAX
    assert judged(b"\x00" * PIECE * 3).errors[0].code == "line_too_long"
