"""The JSON answers of the admin port.

Import only through `listener.py`: this module imports aiohttp.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from aiohttp import web


def answered(value: object, status: int = 200) -> web.Response:
    body = msgspec.json.encode(value) + b"\n"
    return web.Response(body=body, status=status, content_type="application/json")


def refused(
    status: int, code: str, message: str, problems: Sequence[str] | None = None
) -> web.Response:
    """Returns an error: {"error": {"code", "message"}}, and its `problems` if there are any."""
    error: dict[str, object] = {"code": code, "message": message}
    if problems is not None:
        error["problems"] = problems
    return answered({"error": error}, status)
