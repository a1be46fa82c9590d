"""Helpers of all endpoint handlers: find the owner of a request, and make responses of JSON.

Import only through `server.py`: this module imports aiohttp.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import hdrs, web

from router.addons.batches.secrets import Secret

# The header with the owner ID. The data port sets it, and removes the header if a client sent it.
OWNER: Final = "X-Router-Owner"
# The headers with the client's credentials. The data port forwards them if replicas need them.
_SECRETS: Final = (hdrs.AUTHORIZATION, "X-Api-Key", "Api-Key", "X-Goog-Api-Key")
_TYPES: Final = {
    403: "insufficient_quota",
    404: "not_found_error",
    429: "rate_limit_error",
}


def owner_of(request: web.Request) -> str:
    """Return the owner ID of a request; "" if the request has none."""
    return request.headers.get(OWNER, "")


def secret_of(request: web.Request) -> Secret | None:
    """Return the client's credentials for replicas; None if the request has no credentials."""
    found = {name: request.headers[name] for name in _SECRETS if name in request.headers}
    return found or None


def json_answer(value: Any, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json"
    )


def error_answer(status: int, code: str, message: str, param: str | None = None) -> web.Response:
    """Return an error response in OpenAI's format."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return json_answer(
        {"error": {"message": message, "type": kind, "param": param, "code": code}}, status
    )
