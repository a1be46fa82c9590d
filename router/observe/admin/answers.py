"""The JSON answers of the admin port.

Import only through `listener.py`: this module imports aiohttp.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

import msgspec
from aiohttp import web

from router.observe.admin.actions import Refused


def answered(value: object, status: int = 200) -> web.Response:
    body = msgspec.json.encode(value) + b"\n"
    return web.Response(body=body, status=status, content_type="application/json")


def wants_text(request: web.Request) -> bool:
    """Whether a page of JSON is to be text: `?format=text`, or an Accept header that prefers it.

    Raises Refused for another format.
    """
    style = request.query.get("format")
    if style is None:
        first = request.headers.get("Accept", "").partition(",")[0].partition(";")[0]
        return first.strip().lower() in ("text/plain", "text/html")
    if style not in ("json", "text"):
        why = f"format must be one of json, text, not {style!r}"
        raise Refused(HTTPStatus.BAD_REQUEST, "bad_query", why)
    return style == "text"


def refused(
    status: int, code: str, message: str, problems: Sequence[str] | None = None
) -> web.Response:
    """Return an error: {"error": {"code", "message"}}, and its `problems` if there are any."""
    error: dict[str, object] = {"code": code, "message": message}
    if problems is not None:
        error["problems"] = problems
    return answered({"error": error}, status)
