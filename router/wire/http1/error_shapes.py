"""Encodes an error in the format of each API family, as a response body or as an event of a stream.

An SDK raises an exception only for an error in the shape of its own API. Anthropic's SDK reads an
error in a stream only from an event named `error`. Ollama's SDK reads an error from a separate line
of JSON. The request's path determines the family.

`of_replica` reads a replica's error response in the formats of all engines. It is used when the
replica's status cannot be forwarded because the client has already received status 200.

The functions are pure. They are slow, so they must only be called when there is an error.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from router.core.errors import Reason, RouterError
from router.core.unreadable import NOT_JSON
from router.wire.http1.headers import value_of

OPENAI: Final = 0  # OpenAI's API, the default for all other paths
RESPONSES: Final = 1  # OpenAI's Responses API, which has its own events
ANTHROPIC: Final = 2
ANTHROPIC_VERSION: Final = b"anthropic-version:"  # a field that only clients of its API send
LINES: Final = 3  # Ollama: streams are lines of JSON

# An error body of a replica with more bytes than this is not decoded.
_READ_BYTES: Final = 64 * 1024
_MESSAGE: Final = 4096  # maximum characters of a replica's error message

_OPENAI_TYPES: Final[dict[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
# https://platform.claude.com/docs/en/api/errors; the router uses 503 instead of Anthropic's 529.
_ANTHROPIC_TYPES: Final[dict[int, str]] = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_ANTHROPIC_KNOWN: Final = frozenset(
    {*_ANTHROPIC_TYPES.values(), "invalid_request_error", "api_error"}
)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class ErrorFacts(NamedTuple):
    """An error that the router or a replica reports."""

    status: int
    message: str
    type: str | None  # the error type that the replica sent; None: it is derived from the status
    code: str | int | None
    param: str | None


def family_of(target: bytes, lines: list[bytes]) -> int:
    """Return the API family of a request. A priority before the path in the target is allowed.

    Two APIs share the paths of models, so a header field in `lines` decides about them.
    """
    path = target.partition(b"?")[0]
    if b"/v1/messages" in path:
        return ANTHROPIC
    if path.startswith(b"/v1/models") and value_of(lines, ANTHROPIC_VERSION) is not None:
        return ANTHROPIC
    if b"/v1/responses" in path:
        return RESPONSES
    return LINES if path.startswith(b"/api/") else OPENAI


def of_router(err: RouterError) -> ErrorFacts:
    """Return the facts of an error that the router itself reports."""
    return ErrorFacts(err.status, err.message, None, err.reason.value, err.param)


def of_replica(status: int, body: bytes) -> ErrorFacts:
    """Return the facts of the error in a replica's response whose status is not 2xx."""
    found = _read(body) if len(body) <= _READ_BYTES else {}
    message = found.get("message")
    if not isinstance(message, str) or not message:
        message = f"the replica answered {status}"
    kind, code, param = found.get("type"), found.get("code"), found.get("param")
    return ErrorFacts(
        status,
        message[:_MESSAGE],
        kind if isinstance(kind, str) and kind else None,
        code if isinstance(code, str) or type(code) is int else None,
        param if isinstance(param, str) else None,
    )


def _read(body: bytes) -> dict[str, Any]:
    """Return the JSON object with the members of the error, from an error body of any engine."""
    try:
        found = _decode(body)
    except NOT_JSON:
        return {}
    if not isinstance(found, dict):
        return {}
    error = found.get("error")
    if isinstance(error, dict):
        return error  # the format of OpenAI and Anthropic, which vLLM and llama.cpp use
    if isinstance(error, str):
        return {"message": error, "type": found.get("error_type")}  # the format of TGI and Ollama
    detail = found.get("detail")
    if detail is not None and "message" not in found:  # FastAPI's own error format
        return {"message": detail if isinstance(detail, str) else _encode(detail).decode()}
    return found  # OpenAI's format without the member `error`: SGLang and TensorRT-LLM


def body_of(told: ErrorFacts, family: int, request_id: str = "") -> bytes:
    """Return an error as a complete JSON body."""
    if family == LINES:
        return _encode({"error": told.message})
    if family == ANTHROPIC:
        return _encode(_anthropic(told, request_id))
    return _encode({"error": _openai(told)})


def event_of(told: ErrorFacts, family: int, request_id: str = "", number: int = 0) -> bytes:
    """Return an error as an event of a stream that has already begun.

    The event contains the status, because the response's head has already been sent with another
    status. `number`: the number of events before the error.
    """
    if family == LINES:
        return _encode({"error": told.message, "status": told.status}) + b"\n"
    if family == ANTHROPIC:
        body = _anthropic(told, request_id)
        body["error"]["status"] = told.status
        return b"event: error\ndata: " + _encode(body) + b"\n\n"
    error = _openai(told)
    error["status"] = told.status
    if family == RESPONSES:
        body = error | {"type": "error", "sequence_number": number, "error_type": error["type"]}
        return b"event: error\ndata: " + _encode(body) + b"\n\n"
    return b"data: " + _encode({"error": error}) + b"\n\n"


def _openai(told: ErrorFacts) -> dict[str, Any]:
    kind = told.type
    if kind is None:
        usual = "invalid_request_error" if told.status < 500 else "server_error"
        kind = _OPENAI_TYPES.get(told.status, usual)
        if told.code == Reason.MODEL_NOT_FOUND.value:
            kind = usual  # OpenAI's API has this type for an unknown model
        elif told.code == Reason.INSUFFICIENT_QUOTA.value:
            kind = Reason.INSUFFICIENT_QUOTA.value  # OpenAI's type equals its code
    return {"message": told.message, "type": kind, "param": told.param, "code": told.code}


def _anthropic(told: ErrorFacts, request_id: str) -> dict[str, Any]:
    kind = told.type
    if kind not in _ANTHROPIC_KNOWN:
        usual = "invalid_request_error" if told.status < 500 else "api_error"
        kind = _ANTHROPIC_TYPES.get(told.status, usual)
    error = {"type": kind, "message": told.message, "code": told.code}
    return {"type": "error", "error": error, "request_id": request_id or None}
