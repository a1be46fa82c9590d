"""An error is read in any engine's format, and written in the format of the client's API."""

import json
from typing import Any

import pytest

from router.core.errors import Reason, RouterError
from router.wire.http1 import error_shapes as shapes
from router.wire.http1.error_shapes import ANTHROPIC, LINES, OPENAI, RESPONSES, ErrorFacts

BUSY = RouterError(Reason.QUEUE_FULL, 'full: "x"\n', param="model")


@pytest.mark.parametrize(
    ("target", "family"),
    [
        (b"/v1/chat/completions", OPENAI),
        (b"/v1/embeddings?x=/v1/messages", OPENAI),
        (b"/v1/responses", RESPONSES),
        (b"/v1/responses/resp_1", RESPONSES),
        (b"/batch/v1/responses", RESPONSES),
        (b"/v1/messages?beta=true", ANTHROPIC),
        (b"/v1/messages/count_tokens", ANTHROPIC),
        (b"/api/chat", LINES),
        (b"/v1/api/chat", OPENAI),
        (b"*", OPENAI),
        (b"", OPENAI),
    ],
)
def test_the_path_names_the_family(target: bytes, family: int) -> None:
    assert shapes.family_of(target, []) == family


def body(family: int) -> Any:
    return json.loads(shapes.body_of(shapes.of_router(BUSY), family, "r-1"))


def test_bodies() -> None:
    openai = {
        "message": BUSY.message,
        "type": "rate_limit_error",
        "param": "model",
        "code": "queue_full",
    }
    assert body(OPENAI) == body(RESPONSES) == {"error": openai}
    anthropic = {"type": "rate_limit_error", "message": BUSY.message, "code": "queue_full"}
    assert body(ANTHROPIC) == {"type": "error", "error": anthropic, "request_id": "r-1"}
    assert body(LINES) == {"error": BUSY.message}


def event(family: int) -> tuple[bytes, Any]:
    """The text before the JSON of one event, and the JSON."""
    whole = shapes.event_of(shapes.of_router(BUSY), family, "r-1", 7)
    assert whole.endswith(b"\n")
    assert whole.count(b"{") and b"\n\n" not in whole[:-2]
    at = whole.index(b"{")
    return whole[:at], json.loads(whole[at:])


def test_events_contain_the_status() -> None:
    before, told = event(OPENAI)
    assert before == b"data: "
    assert told == {"error": body(OPENAI)["error"] | {"status": 429}}
    before, told = event(ANTHROPIC)
    assert before == b"event: error\ndata: "
    assert told["type"] == "error"
    assert told["error"] == body(ANTHROPIC)["error"] | {"status": 429}
    before, told = event(RESPONSES)
    assert before == b"event: error\ndata: "
    assert (told["type"], told["code"], told["sequence_number"]) == ("error", "queue_full", 7)
    assert (told["message"], told["param"], told["status"]) == (BUSY.message, "model", 429)
    before, told = event(LINES)
    assert (before, told) == (b"", {"error": BUSY.message, "status": 429})


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            {"error": {"message": "m", "type": "BadRequestError", "param": "p", "code": 400}},
            ErrorFacts(400, "m", "BadRequestError", 400, "p"),
        ),
        (
            {"object": "error", "message": "m", "type": "T", "param": None, "code": 400},
            ErrorFacts(400, "m", "T", 400, None),
        ),
        (
            {"type": "error", "error": {"type": "not_found_error", "message": "m"}},
            ErrorFacts(400, "m", "not_found_error", None, None),
        ),
        (
            {"error": "m", "error_type": "validation"},
            ErrorFacts(400, "m", "validation", None, None),
        ),
        ({"detail": "m"}, ErrorFacts(400, "m", None, None, None)),
        (
            {"detail": [{"loc": ["body"], "msg": "no"}]},
            ErrorFacts(400, '[{"loc":["body"],"msg":"no"}]', None, None, None),
        ),
        ({"message": "m" * 9000}, ErrorFacts(400, "m" * 4096, None, None, None)),
        (
            {"error": {"message": 5, "code": True}},
            ErrorFacts(400, "the replica answered 400", *3 * [None]),
        ),
        ({"error": None}, ErrorFacts(400, "the replica answered 400", *3 * [None])),
        ([], ErrorFacts(400, "the replica answered 400", *3 * [None])),
    ],
)
def test_what_a_replica_said(said: object, told: ErrorFacts) -> None:
    assert shapes.of_replica(400, json.dumps(said).encode()) == told


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"\xff", b'{"a":' * 5000, b'{"error":"' + b"x" * 70_000 + b'"}']
)
def test_what_says_nothing(body: bytes) -> None:
    assert shapes.of_replica(502, body).message == "the replica answered 502"


@pytest.mark.parametrize(
    ("reason", "status", "openai", "anthropic"),
    [
        (Reason.MODEL_NOT_FOUND, 404, "invalid_request_error", "not_found_error"),
        (Reason.NOT_FOUND, 404, "not_found_error", "not_found_error"),
        (Reason.BAD_JSON, 400, "invalid_request_error", "invalid_request_error"),
        (Reason.BODY_TOO_LARGE, 413, "invalid_request_error", "request_too_large"),
        (Reason.NO_REPLICA, 503, "server_error", "overloaded_error"),
        (Reason.REPLICA_RESET, 502, "server_error", "api_error"),
        (Reason.TTFT_TIMEOUT, 504, "server_error", "timeout_error"),
        (Reason.REPLICA_BUSY, 429, "rate_limit_error", "rate_limit_error"),
        (Reason.KEY_REQUIRED, 401, "authentication_error", "authentication_error"),
        (Reason.MODEL_NOT_ALLOWED, 403, "permission_error", "permission_error"),
    ],
)
def test_the_types_are_the_apis(reason: Reason, status: int, openai: str, anthropic: str) -> None:
    told = shapes.of_router(RouterError(reason, "m", status=status))
    assert json.loads(shapes.body_of(told, OPENAI))["error"]["type"] == openai
    assert json.loads(shapes.body_of(told, ANTHROPIC))["error"]["type"] == anthropic
