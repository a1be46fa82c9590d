"""Writes an error in the shape of each family of APIs: as a body, and inside a stream.

An SDK raises an exception only for an error in the shape of its own API. Anthropic's SDK reads an
error in a stream only from an event named `error`. Ollama's SDK reads an error from a separate line
of JSON. The request's path determines the family.

`of_replica` reads a replica's error answer in the shapes of all engines. It is used when the status
cannot be passed on because the client has already received a 200.

The functions are pure. Must never: be called when there is no error to report, because they are
slow.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from router.core.errors import Reason, RouterError
from router.core.unreadable import NOT_JSON

OPENAI: Final = 0  # OpenAI's API, the default for all other paths
RESPONSES: Final = 1  # OpenAI's Responses API, which has its own events
ANTHROPIC: Final = 2
LINES: Final = 3  # Ollama: streams are lines of JSON

# maximum bytes of a replica's error body that are decoded; a longer body is not decoded
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
    type: str | None  # the type of the error as the replica named it; None: derived from the status
    code: str | int | None
    param: str | None


def family_of(target: bytes) -> int:
    """Returns the family of a request target, also after a prefix that names a priority."""
    path = target.partition(b"?")[0]
    if b"/v1/messages" in path:
        return ANTHROPIC
    if b"/v1/responses" in path:
        return RESPONSES
    return LINES if path.startswith(b"/api/") else OPENAI


def of_router(err: RouterError) -> ErrorFacts:
    """Returns an error that the router itself reports."""
    return ErrorFacts(err.status, err.message, None, err.reason.value, err.param)


def of_replica(status: int, body: bytes) -> ErrorFacts:
    """Returns the error in a replica's answer whose status is not 2xx."""
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
    """Returns the relevant members of an error body of any engine."""
    try:
        found = _decode(body)
    except NOT_JSON:
        return {}
    if not isinstance(found, dict):
        return {}
    error = found.get("error")
    if isinstance(error, dict):
        return error  # OpenAI's and Anthropic's shape, used by vLLM and llama.cpp
    if isinstance(error, str):
        return {"message": error, "type": found.get("error_type")}  # the shape of TGI and Ollama
    detail = found.get("detail")
    if detail is not None and "message" not in found:  # FastAPI's own error shape
        return {"message": detail if isinstance(detail, str) else _encode(detail).decode()}
    return found  # OpenAI's shape without `error` around it, used by SGLang and TensorRT-LLM


def body_of(told: ErrorFacts, family: int, request_id: str = "") -> bytes:
    """Returns an error as a complete JSON body."""
    if family == LINES:
        return _encode({"error": told.message})
    if family == ANTHROPIC:
        return _encode(_anthropic(told, request_id))
    return _encode({"error": _openai(told)})


def event_of(told: ErrorFacts, family: int, request_id: str = "", number: int = 0) -> bytes:
    """An error inside a stream that has begun, with the status that came too late for the head.

    `number`: how many events of the stream came before the error.
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
            kind = usual  # OpenAI's name for this error
    return {"message": told.message, "type": kind, "param": told.param, "code": told.code}


def _anthropic(told: ErrorFacts, request_id: str) -> dict[str, Any]:
    kind = told.type
    if kind not in _ANTHROPIC_KNOWN:
        usual = "invalid_request_error" if told.status < 500 else "api_error"
        kind = _ANTHROPIC_TYPES.get(told.status, usual)
    error = {"type": kind, "message": told.message, "code": told.code}
    return {"type": "error", "error": error, "request_id": request_id or None}
