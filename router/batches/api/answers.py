"""Helpers of all endpoint handlers: the owner of a request, and answers as JSON.

Import only through `server.py`: this module imports aiohttp.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import hdrs, web

from router.batches.secrets import Secret

# Set by the data port, which removes a field of this name that a client sent.
OWNER: Final = "X-Router-Owner"
# Present if replicas must get the client's credentials.
_SECRETS: Final = (hdrs.AUTHORIZATION, "X-Api-Key")
_TYPES: Final = {
    403: "insufficient_quota",
    404: "not_found_error",
    429: "rate_limit_error",
}


def owner_of(request: web.Request) -> str:
    """The owner of a request; "" if it names none."""
    return request.headers.get(OWNER, "")


def secret_of(request: web.Request) -> Secret | None:
    """The client's credentials for replicas; None: the request has no credentials."""
    found = {name: request.headers[name] for name in _SECRETS if name in request.headers}
    return found or None


def json_answer(value: Any, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json"
    )


def error_answer(status: int, code: str, message: str, param: str | None = None) -> web.Response:
    """An error in OpenAI's shape."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return json_answer(
        {"error": {"message": message, "type": kind, "param": param, "code": code}}, status
    )
