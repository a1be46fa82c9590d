"""The fields read from a body: correct if valid, tolerant if odd, never a crash."""

import gzip
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from router.core.errors import Reason, RouterError
from router.core.session_names import MAX_SESSION
from router.intake.body import (
    DECODE_UP_TO,
    EACH_UP_TO,
    MAX_MODEL,
    SCAN_ABOVE,
    is_form,
    read_fields,
    watch,
)
from router.intake.fields import NAMES, Fields, Unread
from router.intake.routes import OTHER, POSTS, Route
from router.intake.values import is_given, output_tokens_of, session_of
from tests.examples import examples
from tests.intake.members import found, member

CHAT = POSTS[b"/v1/chat/completions"]
AUDIO = POSTS[b"/v1/audio/transcriptions"]


def read(
    body: bytes | list[bytes],
    route: Route = CHAT,
    content_type: bytes | None = b"application/json",
    encoding: bytes | None = None,
) -> Fields:
    pieces = body if isinstance(body, list) else [body]
    size = sum(map(len, pieces))
    large = watch(route, size, content_type)
    for piece in pieces:
        large.feed(piece)
    fields = read_fields(route, pieces if size else [], size, content_type, encoding, large)
    if size > DECODE_UP_TO or is_form(content_type):
        # The field is read even if it is not registered.
        again = read_fields(route, pieces if size else [], size, content_type, encoding)
        assert found(again) == found(fields)
    return fields


def is_unread(fields: Fields) -> bool:
    return isinstance(fields, Unread) and fields.model is None and fields.stream is None


def refusal(*args: Any, **options: Any) -> Reason:
    with pytest.raises(RouterError) as refused:
        read(*args, **options)
    return refused.value.reason


# -- JSON -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, {}),
        ({"model": "m"}, {"model": "m"}),
        ({"model": "m", "stream": True}, {"model": "m", "stream": True}),
        ({"model": None, "stream": None, "previous_response_id": None}, {}),
        (
            {"model": "m", "previous_response_id": "resp_1"},
            {"model": "m", "previous_response_id": "resp_1"},
        ),
        ({"model": "größe", "stream": False}, {"model": "größe", "stream": False}),
        ({"Model": "x", "nested": {"model": "y"}}, {}),
        # members of odd types: unknown to the router, validated by the engine
        ({"model": "m", "stream": "true"}, {"model": "m", "stream": True}),
        ({"model": "m", "stream": "OFF"}, {"model": "m", "stream": False}),
        ({"model": "m", "stream": 1}, {"model": "m", "stream": True}),
        ({"model": "m", "stream": 0.0}, {"model": "m", "stream": False}),
        ({"model": "m", "stream": 2}, {"model": "m"}),
        ({"model": "m", "stream": []}, {"model": "m"}),
        ({"model": "m", "stream": 1, "previous_response_id": 7}, {"model": "m", "stream": True}),
        (
            {"model": "m", "previous_response_id": {}, "stream": True},
            {"model": "m", "stream": True},
        ),
        ({"model": "m", "max_tokens": "many", "messages": 3}, {"model": "m"}),
    ],
)
def test_fields_of_an_object(body: dict[str, Any], fields: dict[str, Any]) -> None:
    for text in (json.dumps(body), json.dumps(body, ensure_ascii=False, indent=3)):
        raw = text.encode()
        assert found(read(raw)) == fields
        assert found(read([raw[:3], raw[3:]])) == fields
        assert found(read(raw, OTHER)) == fields


@pytest.mark.parametrize("model", ["", 5, True, 1.5, [], ["m"], {}, {"a": 1}])
def test_an_unusable_model(model: object) -> None:
    raw = json.dumps({"model": model, "stream": True}).encode()
    assert refusal(raw) is Reason.BAD_MODEL


@pytest.mark.parametrize(
    ("raw", "model"),
    [
        (b'{"model": "first", "model": "last"}', "last"),
        (b'{"model": 5, "model": "last"}', "last"),
        (b'{"model": "first", "stream": 1, "model": "last"}', "last"),
        (b'{"m\\u006fdel": "escaped"}', "escaped"),
        (b'{"model": "first", "m\\u006fdel": "last"}', "last"),
        (b'{"model": "a\\u0000b"}', "a\x00b"),
    ],
)
def test_of_doubled_keys_the_last_counts_as_with_the_engines(raw: bytes, model: str) -> None:
    assert json.loads(raw)["model"] == model
    assert read(raw).model == model


@pytest.mark.parametrize("raw", [b"[]", b"3", b'"text"', b"null", b"true", b'[{"model": "m"}]'])
def test_json_that_is_no_object(raw: bytes) -> None:
    assert refusal(raw) is Reason.BAD_JSON
    assert is_unread(read(raw, OTHER))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"}",
        b'{"model": "m"',
        b'{"model": "m"} x',
        b'{"model": "m"}{}',
        b"{'model': 'm'}",
        b'{"model": "m",}',
        b'{"model": 5, "x": }',
        b"model=m",
        b"\xef\xbb\xbf" + b'{"model": "m"}',
        '{"model": "m"}'.encode("utf-16"),
        '{"model": "m"}'.encode("utf-16-le"),
        '{"model": "m"}'.encode("utf-32"),
        b"\x1f\x8b\x08\x00",
        b'{"model": "\xff"}',
        b'{"x": 01}',
        b'{"x": "\n"}',
    ],
)
def test_what_is_no_json(raw: bytes) -> None:
    assert refusal(raw) is Reason.BAD_JSON
    assert is_unread(read(raw, OTHER)) or not raw


@pytest.mark.parametrize("size", [0, EACH_UP_TO])
@pytest.mark.parametrize("odd", [b"NaN", b"-Infinity", b'"\\udc00"', b"1e999"])
def test_what_only_pythons_parser_accepts_is_read(odd: bytes, size: int) -> None:
    raw = b'{"n": 2, "max_tokens": %b, "model": "m", "x": [%b], "p": "%b"}' % (
        odd,
        odd,
        b"x" * size,
    )
    for route in (CHAT, OTHER):
        fields = read(raw, route)
        assert (fields.model, fields.n, fields.max_tokens) == ("m", 2, None)


@pytest.mark.parametrize("depth", [900, 5_000, 100_000])
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
@pytest.mark.parametrize("before", [b"", b'"stream": 1, '])
def test_deep_nesting_is_bounded(depth: int, opening: bytes, before: bytes) -> None:
    closing = b"]" if opening == b"[" else b"}"
    deep = opening * depth + b"1" + closing * depth
    for key in (b'"messages"', b'"model"', b'"stream"'):
        raw = b"{%b%b: %b}" % (before, key, deep)
        try:
            read(raw)
        except RouterError as err:
            assert err.reason in (Reason.BAD_JSON, Reason.BAD_MODEL)
    assert refusal(b'{"a":' * 100_000) is Reason.BAD_JSON
    assert refusal(b"[" * 100_000) is Reason.BAD_JSON


@pytest.mark.parametrize(
    "value",
    [
        b"1" * 10_000,
        b"-" + b"9" * 10_000,
        b"1e999",
        b"-1e999",
        b"1" * 10_000 + b".5",
        b"9223372036854775808",
        b"-1",
        b'"\\ud800"',
        b'"\\udc00\\ud800"',
        b'"\\u0000"',
    ],
)
def test_values_that_break_readers_are_not_read(value: bytes) -> None:
    raw = b'{"model": "m", "max_tokens": %b, "user": %b, "messages": [%b]}' % (value, value, value)
    fields = read(raw)
    assert (fields.model, fields.stream, fields.previous_response_id) == ("m", None, None)
    assert output_tokens_of(fields, CHAT) is None
    assert session_of(fields) in (None, "\x00", "?", "??")  # an unpaired surrogate is read as "?"
    assert fields.messages is not None  # present, but not parsed
    odd = b'{"model": "m", "stream": %b, "messages": [%b]}' % (value, value)
    assert read(odd).stream is None


@pytest.mark.parametrize("encoding", [b"gzip", b"zstd", b"br", b"deflate, gzip"])
def test_an_encoded_body_is_opaque(encoding: bytes) -> None:
    bomb = gzip.compress(b"x" * 10_000_000)
    assert is_unread(read(bomb, encoding=encoding))
    assert found(read(b'{"model": "m"}', encoding=b"identity")) == {"model": "m"}


@pytest.mark.parametrize(
    "padding", ["", " \r\n", " " * 100_000], ids=["nothing", "white space", "much white space"]
)
def test_a_text_is_read_whatever_its_encoding_says(padding: str) -> None:
    """vLLM and SGLang ignore Content-Encoding: the router reads what they read."""
    text = padding + '{"model": "m", "priority": -9, "rid": "r"}'
    fields = read(text.encode(), encoding=b"gzip")
    assert (fields.model, raw_of(fields, "priority"), raw_of(fields, "rid")) == ("m", b"-9", b'"r"')
    assert read([b"\r", b"\n", text.encode()], encoding=b"br").model == "m"
    assert refusal(text.encode()[:-1], encoding=b"gzip") is Reason.BAD_JSON
    for other in ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"):
        assert refusal(text.encode(other), encoding=b"gzip") is Reason.BAD_JSON


def test_a_form_is_read_whatever_its_encoding_says() -> None:
    body = form(part("priority", b"-9"), part("model", b"m"))
    for before in (b"", b"\r\n"):
        fields = read(before + body, AUDIO, FORM, encoding=b"gzip")
        assert (fields.model, raw_of(fields, "priority")) == ("m", b'"-9"')


# -- bodies too large to decode -----------------------------------------------------------------


def large(before: bytes, after: bytes) -> list[bytes]:
    """A body over the scan limit, in pieces."""
    filler = b"x" * 1_000_000
    count = SCAN_ABOVE // len(filler) + 1
    return [before + b'"messages": "', *[filler] * count, b'"' + after]


@pytest.mark.parametrize(
    ("before", "after", "fields"),
    [
        (b'{"model": "m", "stream": true, ', b"}", {"model": "m", "stream": True}),
        (b"{", b', "model" : "m" , "stream":true}', {"model": "m", "stream": True}),
        (b'{"model": "org/name", ', b', "model": "m"}', {"model": "m"}),
        (b"{", b', "stream": false, "n": 2}', {"stream": False, "n": 2}),
        (b"{", b', "stream": "true"}', {"stream": True}),
        ('{"model": "größe", '.encode(), b"}", {"model": "größe"}),
        (rb'{"mod\u0065l": "m", ', b"}", {"model": "m"}),
        (rb'{"prompt": "\"model\": \"m\", ", ', b"}", {}),
        (b'{"x": {"model": "y"}, ', b', "y": [{"model": "z"}]}', {}),
    ],
)
def test_the_members_of_a_large_body(before: bytes, after: bytes, fields: dict[str, Any]) -> None:
    assert found(read(large(before, after))) == fields
    assert found(read([b"".join(large(before, after))])) == fields
    middle = large(b"{", b"}")
    middle.insert(4, b'",' + before.strip(b"{ ,") + b',"x":"' if len(before) > 1 else b"")
    if not after.strip(b"}"):
        assert found(read(middle)) == fields


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"no json ", b" at all"),
        (b'[{"model": "m"}, {', b"}]"),
        (b'{"priority": 1%b, ' % (b"0" * 5000), b"}"),
    ],
)
def test_a_large_body_that_is_not_read(before: bytes, after: bytes) -> None:
    assert is_unread(read(large(before, after)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"model": "m", ', b"} {}"),
        (b'{"model": "m", ', b""),
        ("\ufeff{".encode("utf-16"), b"}"),
    ],
)
def test_a_large_object_that_is_not_read_is_refused(before: bytes, after: bytes) -> None:
    assert refusal(large(before, after)) is Reason.UNREAD_BODY


def test_a_large_bodys_long_model() -> None:
    assert refusal(large(b'{"model": "%b", ' % (b"x" * 300), b"}")) is Reason.BAD_MODEL
    assert refusal(large(b'{"model": "%b", ' % (b"x" * 9000), b"}")) is Reason.BAD_MODEL


def test_a_body_of_unknown_size_is_scanned_as_it_arrives() -> None:
    pieces = [b'{"model": "m", "x": "', *[b"y" * 1000] * 10_000, b'"}']
    scan = watch(CHAT, None, None)
    for piece in pieces:
        scan.feed(piece)
    size = sum(map(len, pieces))
    assert size > SCAN_ABOVE
    assert found(read_fields(CHAT, pieces, size, None, None, scan)) == {"model": "m"}


def padded(members: bytes, size: int) -> bytes:
    return b'{%b, "pad": [%b1]}' % (members, b"1," * (size // 2))


@pytest.mark.parametrize("size", [EACH_UP_TO, DECODE_UP_TO, SCAN_ABOVE // 2])
def test_a_large_body_has_the_fields_of_a_small_one(size: int) -> None:
    members = (
        b'"model": "m", "stream": true, "n": 2, "max_tokens": 7, "user": "u", "rid": "r",'
        b' "messages": [ {"role": "user", "content": "a\\n"} ] , "tools" : ["b"], "priority": 1,'
        b' "instructions": "i", "stream_options": {"include_usage": false}, "prompt": "last",'
        b' "parameters": {"priority": 3}, "prompt": "one", "system": 3'
    )
    body = padded(members, size)
    assert size < len(body) < SCAN_ABOVE
    large, small = read(body), read(b"{%b}" % members)
    large.system = small.system = None  # odd types: a decoder keeps the value, a scan does not
    assert found(large) == found(small)
    assert raw_of(large, "prompt") == b'"one"'


@pytest.mark.parametrize("dense", [b"[],", b'"",', b"1,", b'{"a":1},'])
def test_the_engine_judges_what_is_inside_a_large_body(dense: bytes) -> None:
    body = b'{"model": "m", "x": [%b oops]}' % (dense * (DECODE_UP_TO // len(dense)))
    assert found(read(body)) == {"model": "m"}
    assert refusal(body[:-1]) is Reason.BAD_JSON  # incomplete object


# -- forms ------------------------------------------------------------------------------------

FORM = b"multipart/form-data; boundary=bnd"


def part(name: str, value: bytes, extra: str = "") -> bytes:
    disposition = f'Content-Disposition: form-data; name="{name}"{extra}'
    return b"--bnd\r\n" + disposition.encode() + b"\r\n\r\n" + value + b"\r\n"


FILE = part("file", b"RIFF\x00\xff\r\n\r\n--bn", '; filename="a.wav"\r\nContent-Type: audio/wav')


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--bnd--\r\n"


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (form(part("model", b"m"), FILE), {"model": "m"}),
        (form(FILE, part("model", b"m")), {"model": "m"}),
        (form(FILE, part("stream", b"true"), part("model", b"m")), {"model": "m", "stream": True}),
        (
            form(FILE, part("stream", b"False"), part("model", b" m ")),
            {"model": "m", "stream": False},
        ),
        (form(part("model", b"a"), part("model", b"a")), {"model": "a"}),
        (form(part("model", b""), FILE), {}),
        (form(part("models", b"x"), part("xmodel", b"y"), FILE), {}),
        (form(part("language", b'name="model"'), FILE), {}),
        (form(FILE), {}),
        (form(), {}),
        (b"a preamble\r\n" + form(part("model", b"m")), {"model": "m"}),
        (form(part("model", b"m")) + b"an epilogue", {"model": "m"}),
        (
            form(
                b"--bnd\r\ncontent-type: text/plain\r\ncontent-disposition: form-data; name=model"
                b"\r\n\r\nm\r\n"
            ),
            {"model": "m"},
        ),
    ],
)
def test_the_model_of_a_form(body: bytes, fields: dict[str, Any]) -> None:
    assert found(read(body, AUDIO, FORM)) == fields
    assert found(read([body[:5], body[5:]], AUDIO, FORM)) == fields
    assert found(read(body, OTHER, FORM)) == fields


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (form(part("model", b"m")), None),
        (form(part("model", b"m")), b"multipart/form-data"),
        (form(part("model", b"m")), b"multipart/form-data; boundary="),
        (form(part("model", b"m")), b"multipart/form-data; boundary=other"),
        (b'{"model": "m"}', b"application/json"),
        (b"", FORM),
    ],
)
def test_what_is_no_form(body: bytes, content_type: bytes | None) -> None:
    assert refusal(body, AUDIO, content_type) is Reason.BAD_MULTIPART


def test_a_forms_long_model() -> None:
    assert refusal(form(part("model", b"x" * 1000)), AUDIO, FORM) is Reason.BAD_MODEL


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"anything", b"multipart/form-data"),
        (b"anything", b"multipart/mixed; boundary=other"),
        (form(part("model", b"x" * 1000)), FORM),
        (json.dumps({"model": "x" * 1000}).encode(), b"application/json"),
        (json.dumps({"model": ""}).encode(), b"application/json"),
        (json.dumps({"model": 5}).encode(), b"application/json"),
        (b"\x00\xff", None),
    ],
)
def test_an_unknown_path_is_the_engines_to_judge(body: bytes, content_type: bytes | None) -> None:
    assert is_unread(read(body, OTHER, content_type))


# -- values kept as the client wrote them --------------------------------------------------------

RAWS = (
    *("messages", "prompt", "input", "instructions", "system", "tools", "cache_salt"),
    *(
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
    ),
)


def raw_of(fields: Fields, name: str) -> bytes | None:
    raw = member(fields, name)
    return None if raw is None else bytes(raw)


@pytest.mark.parametrize("name", RAWS)
@pytest.mark.parametrize(
    "value", [b'"a\\u00e9 \xc3\xa9"', b'[ {"a" : 1 }, 2]', b'{"b":  null}', b'"\xff"', b'""']
)
def test_a_raw_field_is_what_the_client_wrote(name: str, value: bytes) -> None:
    for other in (b"", b', "stream": 1'):  # the fast reader, and the tolerant one
        body = b'{"model": "m", "%b":  %b %b}' % (name.encode(), value, other)
        assert raw_of(read(body), name) == value
        assert raw_of(read([body[:20], body[20:]]), name) == value


@pytest.mark.parametrize("name", RAWS)
def test_a_raw_field_of_an_odd_type_does_not_refuse_the_request(name: str) -> None:
    for value in (b"5", b"-1.5e3", b"true", b"null", b"[]", b"{}", b'"\\ud800"'):
        for other in (b"", b', "stream": 1'):
            body = b'{"model": "m", "%b": %b%b}' % (name.encode(), value, other)
            fields = read(body)
            assert fields.model == "m"
            assert session_of(fields) in (None, "?")
            raw = raw_of(fields, name)
            assert raw in (None, value.replace(b"ud800", b"u003f"), value)
            assert is_given(member(fields, name)) == (raw is not None and value != b"null")


def test_dropping_lets_the_body_go() -> None:
    members = {name: [name] for name in RAWS}
    fields = read(json.dumps({"model": "m", "stream": True, **members}).encode())
    assert all(member(fields, name) is not None for name in RAWS)
    fields.drop()
    assert found(fields) == {"model": "m", "stream": True}
    # Every field that is a view of the body must be released by `drop`.
    assert {name for name in NAMES if name in RAWS} == set(RAWS)
    assert len(NAMES) == len(RAWS) + 3 + 4


@pytest.mark.parametrize(
    ("body", "session"),
    [
        ({}, None),
        ({"user": "u"}, "u"),
        ({"user": "u", "prompt_cache_key": "k"}, "k"),
        ({"user": "u", "prompt_cache_key": "k", "session_id": "s"}, "s"),
        ({"user": "u", "prompt_cache_key": "", "session_id": None}, "u"),
        ({"user": 5, "session_id": ["s"]}, None),
        ({"user": "é" * MAX_SESSION}, "é" * MAX_SESSION),
        ({"user": "é" * (MAX_SESSION + 1)}, None),
        ({"session_id": "x" * 1_000_000, "user": "u"}, "u"),
        ({"metadata": {"session_id": "inner"}}, None),
    ],
)
def test_the_session_key(body: dict[str, Any], session: str | None) -> None:
    assert session_of(read(json.dumps(body).encode())) == session
    assert session_of(read(json.dumps(body, ensure_ascii=False).encode())) == session
    assert session_of(read(json.dumps({**body, "stream": 1}).encode())) == session


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({}, None),
        ({"max_tokens": 7}, 7),
        ({"max_tokens": 7, "max_completion_tokens": 9}, 9),
        ({"max_tokens": None, "max_completion_tokens": 5}, 5),
        ({"max_tokens": 0}, None),
        ({"max_tokens": -1}, None),
        ({"max_tokens": 7.0}, 7),
        ({"max_tokens": 7.5}, None),
        ({"max_tokens": True}, None),
        ({"max_tokens": "7"}, 7),
        ({"max_tokens": " 100000.0 ", "max_completion_tokens": 1}, 100_000),
        ({"max_tokens": "7.5"}, None),
        ({"max_tokens": "nan", "max_completion_tokens": "inf"}, None),
        ({"max_tokens": "1" * 65}, None),
        ({"max_tokens": 10**30}, None),
        ({"max_tokens": 1e300}, None),
        ({"max_completion_tokens": "x", "max_tokens": 7, "n": 2}, 7),
    ],
)
def test_the_output_asked_for(body: dict[str, Any], tokens: int | None) -> None:
    fields = read(json.dumps(body).encode())
    assert output_tokens_of(fields, CHAT) == tokens
    assert fields.n == body.get("n")


# -- any input -----------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=5) | st.sampled_from(["model", "stream"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
ROUTES = st.sampled_from([CHAT, AUDIO, OTHER])


def harmless(body: bytes, route: Route, content_type: bytes | None) -> None:
    """Fields of the documented types, or a refusal that blames the body."""
    try:
        fields = read(body, route, content_type)
    except RouterError as err:
        assert err.reason in (Reason.BAD_JSON, Reason.BAD_MULTIPART, Reason.BAD_MODEL)
        return
    assert fields.model is None or (isinstance(fields.model, str) and fields.model)
    assert fields.stream in (None, True, False)
    assert session_of(fields) is None or 0 < len(session_of(fields)) <= MAX_SESSION
    assert output_tokens_of(fields, CHAT) is None or output_tokens_of(fields, CHAT) > 0
    assert fields.model is None or len(fields.model) <= MAX_MODEL


@examples(300)
@given(st.binary(max_size=200), ROUTES, st.sampled_from([None, FORM, b"application/json"]))
def test_random_bytes(body: bytes, route: Route, content_type: bytes | None) -> None:
    harmless(body, route, content_type)
    harmless(b'{"model": "' + body + b'"}', route, content_type)
    harmless(b"--bnd\r\n" + body + b"\r\n--bnd--", route, content_type)


@examples(300)
@given(
    st.dictionaries(
        st.sampled_from(["model", "stream", "previous_response_id", "x"]) | st.sampled_from(NAMES),
        VALUES,
    ),
    ROUTES,
)
def test_random_json(value: dict[str, Any], route: Route) -> None:
    body = json.dumps(value).encode()
    harmless(body, route, b"application/json")


@given(st.text(min_size=1, max_size=30), st.dictionaries(st.just("x") | st.text(), st.text()))
def test_any_model_is_read(model: str, others: dict[str, str]) -> None:
    known = set(NAMES)
    members = {name: value for name, value in others.items() if name not in known}
    assert read(json.dumps({**members, "model": model}).encode()).model == model
