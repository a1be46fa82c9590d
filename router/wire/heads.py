"""The two heads as the readers leave them: sorted, judged, ready to be used. Plain values.

One is copied per message, so they are structs of C; compiled code and everybody else shares them.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import msgspec


class RequestHead(msgspec.Struct, gc=False):
    """A request's head, sorted. `lines` are the fields that pass on as they came."""

    if TYPE_CHECKING:  # msgspec has it; copy.copy would take five times as long to find it

        def __copy__(self) -> RequestHead: ...

    method: bytes = b""
    target: bytes = b""
    http_1_0: bool = False
    keep_alive: bool = True
    lines: list[bytes] = []
    joined: bytes = b""  # `lines`, each with a CRLF before it
    content_length: int | None = None
    host: bytes | None = None  # an absolute target's host wins over the field
    chunked: bool = False
    has_body: bool = False
    expect_continue: bool = False
    via: list[bytes] | None = None
    forwarded_for: bytes | None = None
    forwarded_other: list[bytes] | None = None
    request_id: bytes | None = None
    authorization: bytes | None = None  # the whole line
    api_key: bytes | None = None  # x-api-key, the whole line: Anthropic's SDKs send it
    content_type: bytes | None = None
    content_encoding: bytes | None = None
    model: bytes | None = None  # x-router-model: routes a body we do not read
    session: bytes | None = None  # x-session-id: the key of a conversation
    priority: bytes | None = None  # x-priority: how urgent its client says it is
    hedge: bytes | None = None  # x-hedge: whether its client wants a second copy
    # Seconds for which its client says that it waits (`patience`) ...
    patience_s: float = inf
    sdk_patience_s: float = inf  # ... for the first byte of an answer, as its SDK says unasked
    owner: bytes | None = None  # x-router-owner: for whom the batch door says it asks
    door: int = -1  # the class of urgency that its path named; -1: none
    route: Any = None  # a note of whoever judged the head
    passes: bool = False  # ... who wants its body to pass by us, as it comes ...
    watch: Any = None  # ... or wants to be fed (`feed`) each piece of it


class ResponseHead(msgspec.Struct, gc=False):
    """A response's head, sorted. `lines` are the fields that pass on as they came."""

    if TYPE_CHECKING:  # msgspec has it; copy.copy would take five times as long to find it

        def __copy__(self) -> ResponseHead: ...

    status: int = 0
    status_line: bytes = b""  # without its version: b"200 OK"
    lines: list[bytes] = []
    joined: bytes = b""  # `lines`, each with a CRLF before it
    content_length: int | None = None
    chunked: bool = False
    is_sse: bool = False
    is_json: bool = False  # one value, not lines of them
    has_date: bool = False
    load: bytes | None = None  # endpoint-load-metrics: what the engine says of itself by the way
    retry_after: bytes | None = None  # when it wants to be asked again
    keep_alive: bool = True
