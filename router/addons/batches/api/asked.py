"""Validates clients' input: JSON bodies and query strings. All functions raise Refused.

`owner_of`, `secret_of`, `json_answer`: helpers of all endpoint handlers: find the owner of a
request, and make responses of JSON.

Import only through `server.py`: this module imports aiohttp.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from aiohttp import hdrs, web

from router.addons.batches.secrets import Secret
from router.core.numbers import whole_number
from router.core.text.printable import printable
from router.core.unreadable import NOT_JSON
from router.intake.routes import JSON, POSTS

HOUR_S: Final = 3600
EXPIRES_MAX_S: Final = 30 * 24 * HOUR_S
_WINDOW: Final = re.compile(r"([1-9][0-9]{0,2})h\Z")
_HOURS_MAX: Final = 14 * 24
# The maximum number of pairs in `metadata`, of characters of a key, and of characters of a value.
_METADATA: Final = (16, 64, 512)
FILENAME_CHARS: Final = 256


class Refused(Exception):
    """The request is refused with an error response in OpenAI's format."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param


class Expiry(msgspec.Struct):
    anchor: str
    seconds: int


class NewBatch(msgspec.Struct):
    """The members of the body of POST /v1/batches."""

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None
    output_expires_after: Expiry | None = None

    @property
    def window_s(self) -> int:
        """The batch's completion window in seconds."""
        found = _WINDOW.match(self.completion_window)
        assert found is not None
        return int(found[1]) * HOUR_S


_decode = msgspec.json.Decoder(NewBatch).decode


def new_batch(body: bytes) -> NewBatch:
    try:
        asked = _decode(body)
    except msgspec.ValidationError as err:
        raise Refused(400, "invalid_request", f"{err}.") from None
    except NOT_JSON:
        raise Refused(400, "bad_json", "The body is not JSON.") from None
    route = POSTS.get(asked.endpoint.encode("utf-8", "replace"))
    if route is None or not route.inference or route.body != JSON:
        message = "This endpoint does not support batches; /v1/chat/completions does."
        raise Refused(400, "invalid_endpoint", message, "endpoint")
    window = _WINDOW.match(asked.completion_window)
    if window is None or int(window[1]) > _HOURS_MAX:
        message = f"The completion_window must be hours from 1h to {_HOURS_MAX}h, e.g. 24h."
        raise Refused(400, "invalid_completion_window", message, "completion_window")
    pairs, key_chars, value_chars = _METADATA
    metadata = asked.metadata or {}
    if len(metadata) > pairs or any(
        len(key) > key_chars or len(value) > value_chars for key, value in metadata.items()
    ):
        message = (
            f"At most {pairs} pairs, keys of {key_chars} and values of {value_chars} characters."
        )
        raise Refused(400, "invalid_metadata", message, "metadata")
    if asked.output_expires_after is not None:
        expiry = asked.output_expires_after
        expires_after(expiry.anchor, expiry.seconds, "output_expires_after")
    return asked


def expires_after(anchor: str, seconds: int, param: str) -> int:
    """Return how long a file is kept, in seconds. Raises Refused if the values are invalid."""
    if anchor != "created_at":
        raise Refused(400, "invalid_anchor", "The anchor must be created_at.", f"{param}.anchor")
    if not HOUR_S <= seconds <= EXPIRES_MAX_S:
        message = f"Must be {HOUR_S} to {EXPIRES_MAX_S} seconds."
        raise Refused(400, "invalid_seconds", message, f"{param}.seconds")
    return seconds


def limit_of(query: Mapping[str, str], usual: int, most: int) -> int:
    """Return the number of entries on one page of a list. Raises Refused if it is invalid."""
    text = query.get("limit")
    if text is None:
        return usual
    limit = whole_number(text, 9)
    if limit is None or not 1 <= limit <= most:
        raise Refused(400, "invalid_limit", f"The limit must be 1 to {most}.", "limit")
    return limit


def is_oldest_first(query: Mapping[str, str]) -> bool:
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise Refused(400, "invalid_order", "The order must be asc or desc.", "order")
    return order == "asc"


def filename_of(given: str | None) -> str:
    """Return a file name that is only displayed. On disk the file has another name."""
    name = (given or "").replace("\\", "/").rpartition("/")[2]
    plain = printable(name, "_")[:FILENAME_CHARS]
    return plain.encode("utf-8", "replace").decode() or "file.jsonl"


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
