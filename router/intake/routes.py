"""What a request target means: which kind of route, what its body is, whether it is forwarded at
all.

Every path is forwarded, so that an engine's new endpoint works the day it appears, with one
exception: the endpoints that control an engine or show its insides (`CONTROL`, of all engines).
These endpoints return 404 unless the configuration allows them one by one.

A path is judged in the form an engine would understand it in (percent-decoded, without a trailing
slash), and a path that two servers could read in two ways (dot segments, doubled slashes,
backslashes, encoded slashes, line breaks or NUL) is refused, so that what is judged and what is
forwarded agree.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote_to_bytes

from router.core.errors import Reason, RouterError
from router.fleet.engines.common.registry import CONTROL, CONTROL_BELOW, NATIVE_PATHS

JSON: Final = "json"
MULTIPART: Final = "multipart"
# The body has any format: read the model if there is one; the engine validates the rest.
ANY: Final = "any"


# Kinds whose answers are numbers, computed by the prefill alone.
_PREFILL_ONLY: Final = frozenset({"embeddings", "rerank", "score", "pooling"})


class Route:
    """How the requests of one path are treated. Shared by its requests, never changed."""

    __slots__ = (
        "body",
        "decodes",
        "inference",
        "is_edited",
        "is_known",
        "kind",
        "light",
        "repeatable",
        "streams_events",
    )

    def __init__(
        self,
        kind: str,
        inference: bool,
        body: str,
        repeatable: bool,
        light: bool = False,
        streams_events: bool = False,
        is_known: bool = True,
        is_edited: bool = True,
    ) -> None:
        self.kind = kind  # closed set: log field and metric label
        self.inference = inference  # nothing is relayed before the first content event
        self.body = body  # JSON, MULTIPART or ANY
        self.repeatable = repeatable  # may be sent again after it may have been executed
        self.light = light  # uses no GPU: never waits in the queue, and does not count as load
        # The engine generates tokens. Of an unknown path, this is assumed.
        self.decodes = inference and not light and kind not in _PREFILL_ONLY
        # If the client requests a stream, every engine answers with server-sent events.
        self.streams_events = streams_events
        # The meaning of the body's members is known. Otherwise the request counts and waits like
        # inference, and is never edited, hedged or sent a second time.
        self.is_known = is_known
        # The members by which engines judge urgency can be replaced: the body is JSON and known.
        # Otherwise a body that has a priority above the ceiling is refused.
        self.is_edited = is_edited


KINDS: Final = (
    "chat",
    "completions",
    "responses",
    "messages",
    "embeddings",
    "rerank",
    "score",
    "pooling",
    "tokenize",
    "generate",
    "audio",
    "models",
    "batches",
    "other",
)


def _inference(
    kind: str, *paths: bytes, body: str = JSON, light: bool = False, events: bool = False
) -> dict[bytes, Route]:
    route = Route(kind, True, body, True, light, events, is_edited=body == JSON)
    return dict.fromkeys(paths, route)


# Methods whose bodies an engine may run as inference. Some serve PUT like POST, so every rule for
# POST holds for all of them.
_BODY_METHODS: Final = frozenset({b"POST", b"PUT", b"PATCH"})


def _native() -> dict[bytes, Route]:
    """The paths of engines' own APIs. Engines that share a path agree about it."""
    found: dict[bytes, Route] = {}
    for path in NATIVE_PATHS:
        found.update(_inference(path.kind, path.path, events=path.streams_events, light=path.light))
    return found


# POST, PUT and PATCH to these exact paths are inference.
POSTS: Final[dict[bytes, Route]] = {
    **_native(),
    **_inference("chat", b"/v1/chat/completions", events=True),
    **_inference("completions", b"/v1/completions", events=True),
    # A stored response is a side effect, so such a request is not sent twice.
    b"/v1/responses": Route("responses", True, JSON, False, streams_events=True),
    **_inference("messages", b"/v1/messages", events=True),
    **_inference("embeddings", b"/v1/embeddings"),
    **_inference("rerank", b"/v1/rerank"),
    **_inference("tokenize", b"/v1/messages/count_tokens", light=True),
    **_inference("audio", b"/v1/audio/transcriptions", b"/v1/audio/translations", body=MULTIPART),
    **_inference("audio", b"/v1/audio/speech"),
}

MODELS: Final = Route("models", False, ANY, True, light=True)
OTHER: Final = Route("other", False, ANY, False)
# POST, PUT and PATCH to an unknown path may cause work at an engine.
UNKNOWN: Final = Route("other", True, ANY, False, is_known=False, is_edited=False)
OTHER_SAFE: Final = Route("other", False, ANY, True, light=True)  # GET, HEAD, OPTIONS
STORED: Final = Route("responses", False, ANY, True, light=True)  # GET /v1/responses/{id}
STORED_CHANGE: Final = Route("responses", False, ANY, False)  # DELETE, POST …/cancel

BATCHES: Final = Route("batches", False, ANY, False)  # files and batches of OpenAI's API

# OPTIONS *: answered by the router itself.
SERVER: Final = Route("other", False, ANY, True, light=True)
ASTERISK: Final = b"*"

STORED_PREFIX: Final = b"/v1/responses/"
MODELS_PATH: Final = b"/v1/models"
_BATCH_PATHS: Final = frozenset({b"/v1/files", b"/v1/batches"})
_BATCHES_BELOW: Final = (b"/v1/files/", b"/v1/batches/")

# Paths whose answers are pictures, sound or vectors: the answer's size does not measure tokens.
_DATA_BELOW: Final = (b"/v1/images/", b"/v1/videos", b"/v1/audio/", b"/api/embed")

_TRICKS: Final = (b"//", b"/./", b"/../", b"\\", b";", b"\x00")


def has_judged_body(method: bytes) -> bool:
    """Return whether the body of a request with this method is read and judged."""
    return method == b"POST" or method in _BODY_METHODS


def may_answer_in_text(path: bytes) -> bool:
    """Return whether the responses of an unknown path may contain text of a model."""
    return not path.startswith(_DATA_BELOW)


def classify(method: bytes, target: bytes, allowed: frozenset[bytes]) -> tuple[Route, bytes]:
    """The route of a request target and its path, decoded and without its query.

    A route with `inference` is returned only for a method whose body is judged.
    `allowed` are control paths that the configuration lets through. Raises RouterError for a path
    that is not served here or that could be read in two ways.
    """
    if has_judged_body(method):
        exact = POSTS.get(target)
        if exact is not None:
            return exact, target
    elif target == ASTERISK:
        return SERVER, target
    path = target.partition(b"?")[0]
    plain = _plain(path)
    lower = plain.lower()
    is_control = lower in CONTROL or lower.startswith(CONTROL_BELOW)
    if is_control and plain not in allowed:
        raise RouterError(Reason.NOT_FOUND, "this path is not served here")
    if plain in _BATCH_PATHS or plain.startswith(_BATCHES_BELOW):
        return BATCHES, plain
    if has_judged_body(method):
        route = POSTS.get(plain)
        if route is not None:
            return route, plain
        if plain.startswith(STORED_PREFIX):
            return STORED_CHANGE, plain
        return (OTHER if is_control else UNKNOWN), plain
    safe = method in (b"GET", b"HEAD", b"OPTIONS")
    if plain == MODELS_PATH or plain.startswith(b"/v1/models/"):
        return MODELS, plain
    if plain.startswith(STORED_PREFIX):
        return (STORED if safe else STORED_CHANGE), plain
    return (OTHER_SAFE if safe else OTHER), plain


def _plain(path: bytes) -> bytes:
    """A path as an engine understands it. Raises RouterError for one with two meanings."""
    decoded = path
    if b"%" in path:
        decoded = unquote_to_bytes(path)
        upper = path.upper()
        # SDKs escape the slash of a model's name in /v1/models/{model}; no other path needs an
        # escaped slash.
        if b"%2F" in upper and not path.startswith(b"/v1/models/"):
            raise RouterError(Reason.BAD_TARGET, "an encoded slash in the path")
        if b"%" in decoded and unquote_to_bytes(decoded) != decoded:
            raise RouterError(Reason.BAD_TARGET, "a doubly encoded path")
    probe = decoded + b"/"
    for trick in _TRICKS:
        if trick in probe and not (trick == b"//" and decoded.endswith(b"/")):
            raise RouterError(Reason.BAD_TARGET, "a path that can be read in two ways")
    if b"//" in decoded:
        raise RouterError(Reason.BAD_TARGET, "a path that can be read in two ways")
    # A route's pattern may match before a line break at the end, and a space at the end may be
    # removed.
    if decoded[-1] <= 0x20 or b"\n" in decoded or b"\r" in decoded:
        raise RouterError(Reason.BAD_TARGET, "a line break, or a blank at the end, in the path")
    return decoded.rstrip(b"/") or b"/"
