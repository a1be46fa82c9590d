"""Functions for short answers that are not streamed."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web


def json_response(body: bytes, status: int = 200, **headers: str) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


def json_value(value: Any, status: int = 200) -> web.Response:
    return json_response(msgspec.json.encode(value), status)


def text_response(text: str, content_type: str = "text/plain; charset=utf-8") -> web.Response:
    return web.Response(body=text.encode(), headers={"content-type": content_type})


class Answered(Exception):
    """Raised to end a handler; the client gets the given response."""

    def __init__(self, response: web.Response) -> None:
        super().__init__()
        self.response = response
