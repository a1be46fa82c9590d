"""The meaning of a request target, and blocked targets: interpreted as an engine would."""

from urllib.parse import quote

import pytest
from hypothesis import given, strategies as st

from router.core.errors import Reason, RouterError
from router.intake.routes import (
    CONTROL,
    CONTROL_BELOW,
    HEALTH,
    KINDS,
    MODELS,
    OTHER,
    OTHER_SAFE,
    POSTS,
    STORED,
    STORED_CHANGE,
    UNKNOWN,
    Route,
    classify,
)
from tests.examples import examples

NONE: frozenset[bytes] = frozenset()
METHODS = [b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"]


def refusal(target: bytes, method: bytes = b"GET", allowed: frozenset[bytes] = NONE) -> Reason:
    with pytest.raises(RouterError) as refused:
        classify(method, target, allowed)
    return refused.value.reason


def encoded(path: bytes) -> bytes:
    """Every byte except the slashes percent-encoded."""
    return b"".join(b"/" if c == 0x2F else b"%%%02x" % c for c in path)


def below(path: bytes) -> bytes:
    return path + b"x" if path.endswith(b"/") else path


EVERY_CONTROL = sorted([*CONTROL, *(below(prefix) for prefix in CONTROL_BELOW)])


@pytest.mark.parametrize("path", EVERY_CONTROL, ids=bytes.decode)
def test_a_control_endpoint_is_not_served_however_it_is_spelled(path: bytes) -> None:
    for method in METHODS:
        assert refusal(path, method) is Reason.NOT_FOUND
    for spelled in (
        path + b"/",
        path + b"?x=1",
        path + b"/?x=1",
        encoded(path),
        encoded(path).upper().replace(b"/", b"/"),
        path[:2] + b"%%%02X" % path[2] + path[3:],
        path.upper(),
        path.title(),
    ):
        assert refusal(spelled, b"POST") is Reason.NOT_FOUND, spelled


@pytest.mark.parametrize("path", EVERY_CONTROL, ids=bytes.decode)
def test_a_control_endpoint_passes_when_allowed_and_only_that_one(path: bytes) -> None:
    allowed = frozenset({path})
    assert classify(b"POST", path, allowed)[1] == path
    assert classify(b"GET", path + b"/?a=b", allowed)[1] == path
    assert classify(b"GET", encoded(path), allowed)[1] == path
    other = next(p for p in EVERY_CONTROL if p != path)
    assert refusal(other, b"POST", allowed) is Reason.NOT_FOUND


@pytest.mark.parametrize(
    "path",
    [
        b"/metricsx",
        b"/v1/metrics",
        b"/sleepy",
        b"/loads",
        b"/health_generate",
        b"/version",
        b"/ping",
        b"/v1/realtime",
        b"/tomorrow/s/endpoint",
        b"/",
    ],
)
def test_everything_else_passes(path: bytes) -> None:
    assert classify(b"GET", path, NONE) == (OTHER_SAFE, path)
    assert classify(b"HEAD", path, NONE) == (OTHER_SAFE, path)
    assert classify(b"POST", path, NONE) == (UNKNOWN, path)
    assert classify(b"DELETE", path, NONE) == (OTHER, path)


def test_the_router_itself_answers_health() -> None:
    for target in (b"/health", b"/health?x=1", b"/health/"):
        for method in (b"GET", b"HEAD"):
            assert classify(method, target, NONE)[0] is HEALTH
    assert classify(b"POST", b"/health", NONE) == (UNKNOWN, b"/health")
    assert classify(b"OPTIONS", b"/health", NONE) == (OTHER_SAFE, b"/health")


@pytest.mark.parametrize(
    "path", [*POSTS, b"/tomorrow/s/endpoint", b"/v1/models", b"/sleep", b"/v1/files"]
)
def test_put_and_patch_are_judged_like_post(path: bytes) -> None:
    allowed = frozenset({b"/sleep"})
    for method in (b"PUT", b"PATCH"):
        assert classify(method, path, allowed) == classify(b"POST", path, allowed)


TRICKS = [
    b"//metrics",
    b"/v1//chat/completions",
    b"/a//",
    b"//",
    b"/./metrics",
    b"/.",
    b"/a/.",
    b"/a/./b",
    b"/..",
    b"/../metrics",
    b"/a/..",
    b"/a/../metrics",
    b"/..;/metrics",
    b"/metrics;x=1",
    b"/a;/b",
    b"/a\\b",
    b"\\metrics",
    b"/%2e%2e/metrics",
    b"/%2E/metrics",
    b"/.%2e/metrics",
    b"/a/%2e%2e",
    b"/%5cmetrics",
    b"/metrics%3bx",
    b"/metrics%00",
    b"/%00",
    b"/a%2fb",
    b"/a%2Fb",
    b"/%2fmetrics",
    b"/v1%2fmodels",
    b"/a%0ab",
    b"/a%0d%0ab",
    b"/metrics%0a",
    b"/metrics%09",
    b"/metrics%20",
    b"/%2566",
    b"/%256detrics",
    b"/%25%36%64etrics",
    b"/v1/models/%2e%2e/metrics",
    b"/v1/models/..%2f..%2fmetrics",
    b"/v1/models/%2fa",
    b"/v1/models/a%2f%2fb",
]


@pytest.mark.parametrize("path", TRICKS)
def test_a_path_with_two_meanings_is_refused(path: bytes) -> None:
    for method in METHODS:
        assert refusal(path, method) is Reason.BAD_TARGET
    assert refusal(path + b"?a=b") is Reason.BAD_TARGET
    everything = frozenset([*CONTROL, path])
    assert refusal(path, b"GET", everything) is Reason.BAD_TARGET


@pytest.mark.parametrize("path", sorted(POSTS), ids=bytes.decode)
def test_inference_is_a_post(path: bytes) -> None:
    route = POSTS[path]
    for spelled in (path, path + b"/", path + b"?a=b", encoded(path)):
        assert classify(b"POST", spelled, NONE) == (route, path)
    assert route.inference
    assert route.kind in KINDS
    assert not classify(b"GET", path, NONE)[0].inference


@pytest.mark.parametrize(
    ("method", "target", "route", "path"),
    [
        (b"GET", b"/v1/models", MODELS, b"/v1/models"),
        (b"GET", b"/v1/models/", MODELS, b"/v1/models"),
        (b"HEAD", b"/v1/models", MODELS, b"/v1/models"),
        (b"GET", b"/v1/models/m", MODELS, b"/v1/models/m"),
        (b"GET", b"/v1/models/org%2Fname", MODELS, b"/v1/models/org/name"),
        (b"GET", b"/v1/models/org/name", MODELS, b"/v1/models/org/name"),
        (b"GET", b"/v1/modelsx", OTHER_SAFE, b"/v1/modelsx"),
        (b"GET", b"/v1/responses/resp_1", STORED, b"/v1/responses/resp_1"),
        (b"GET", b"/v1/responses/resp_1/input_items", STORED, b"/v1/responses/resp_1/input_items"),
        (b"DELETE", b"/v1/responses/resp_1", STORED_CHANGE, b"/v1/responses/resp_1"),
        (b"POST", b"/v1/responses/r/cancel", STORED_CHANGE, b"/v1/responses/r/cancel"),
        (b"OPTIONS", b"/v1/chat/completions", OTHER_SAFE, b"/v1/chat/completions"),
        (b"GET", b"/caf%C3%A9", OTHER_SAFE, "/café".encode()),
        (b"GET", b"/a%20b%25", OTHER_SAFE, b"/a b%"),
        (b"GET", b"/a%zz", OTHER_SAFE, b"/a%zz"),
    ],
)
def test_other_routes(method: bytes, target: bytes, route: Route, path: bytes) -> None:
    assert classify(method, target, NONE) == (route, path)


@examples(300)
@given(st.sampled_from(METHODS), st.text(st.characters(codec="ascii"), max_size=30), st.data())
def test_what_passes_is_never_control_after_any_decoding(
    method: bytes, text: str, data: st.DataObject
) -> None:
    """However a server behind the router decodes an allowed path, it is not a control endpoint."""
    target = b"/" + text.encode()
    if data.draw(st.booleans()):
        control = data.draw(st.sampled_from(EVERY_CONTROL))
        target = control + data.draw(st.sampled_from([b"", b"/", b"/.", b"%2f", b";", b"%00"]))
        target = quote(target, safe="/%;").encode() + text.encode().partition(b"?")[0][:2]
    try:
        _, path = classify(method, target, NONE)
    except RouterError as err:
        assert err.reason in (Reason.NOT_FOUND, Reason.BAD_TARGET)
        return
    assert path.startswith(b"/")
    assert path.rstrip(b"/") not in CONTROL
    assert not path.startswith(CONTROL_BELOW)
    assert b"/../" not in path + b"/"


@pytest.mark.parametrize(
    ("path", "decodes"),
    [
        (b"/v1/chat/completions", True),
        (b"/v1/audio/transcriptions", True),
        (b"/some/unknown/path", True),
        (b"/v1/embeddings", False),
        (b"/rerank", False),
        (b"/tokenize", False),
    ],
)
def test_only_some_requests_generate_tokens(path: bytes, decodes: bool) -> None:
    route, _ = classify(b"POST", path, frozenset())
    assert route.decodes is decodes
