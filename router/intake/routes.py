"""Maps a request's method and path to a `Route`, which says how to treat the request.

Every path is forwarded, so that an engine's new endpoint works at once. The only exceptions are
endpoints that control an engine or show its internal state (`CONTROL`, of all engines). These
endpoints return 404 unless the configuration allows them one by one.

A path is matched in the form in which an engine understands it: percent-decoded and without a
trailing slash. A path that two servers could read in two ways is refused, because the engine could
serve another path than the matched one. Such paths contain dot segments, doubled slashes,
backslashes, encoded slashes, line breaks or NUL.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote_to_bytes

from router.core.errors import Reason, RouterError
from router.fleet.engines.common.registry import (
    CONTROL,
    CONTROL_BELOW,
    COUNTS_NATIVELY,
    NATIVE_PATHS,
)

JSON: Final = "json"
MULTIPART: Final = "multipart"
# The body may have any format. The model is read if the body has one; the engine validates it.
ANY: Final = "any"


# The kinds of routes whose results are numbers that the prefill computes; no token is generated.
_PREFILL_ONLY: Final = frozenset({"embeddings", "rerank", "score", "pooling"})


# The members of a body that limit the output of the engines on a route.
NO_MEMBER: Final = 0  # Other members, or members that the router does not know.
MAX_TOKENS: Final = 1
MAX_OUTPUT_TOKENS: Final = 2
BOTH_MEMBERS: Final = 3  # `max_tokens` or `max_completion_tokens`, depending on the engine.
_LIMITED_BY: Final = {
    "completions": MAX_TOKENS,
    "messages": MAX_TOKENS,
    "responses": MAX_OUTPUT_TOKENS,
}


class Route:
    """How the router treats the requests of one path. Requests share this object, so it must not
    be changed.
    """

    __slots__ = (
        "body",
        "decodes",
        "inference",
        "is_edited",
        "is_known",
        "kind",
        "light",
        "limited_by",
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
        limits_output: bool = True,
    ) -> None:
        """`limits_output`: the usual members of this kind of route limit the output."""
        self.kind = kind  # one of `KINDS`: the value in the log and in metric labels
        # The request runs a model. No byte of the response is sent before the first event with
        # content.
        self.inference = inference
        self.body = body  # JSON, MULTIPART or ANY
        self.repeatable = repeatable  # may be sent again although a replica may have executed it
        self.light = light  # uses no GPU: never waits in the queue, and does not count as load
        # The engine generates tokens. For an unknown path this is assumed.
        self.decodes = inference and not light and kind not in _PREFILL_ONLY
        # If the client requests a stream, every engine responds with server-sent events.
        self.streams_events = streams_events
        # The router knows the meaning of the body's members. If not, the request waits in the queue
        # like inference, but is never edited, hedged or sent a second time.
        self.is_known = is_known
        # The router can replace the body's members that set a priority, because the body is JSON of
        # a known format. If not, a body with a priority above the ceiling is refused.
        self.is_edited = is_edited
        # The members of the body that limit the output.
        self.limited_by = _LIMITED_BY.get(kind, BOTH_MEMBERS) if limits_output else NO_MEMBER


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
    kind: str,
    *paths: bytes,
    body: str = JSON,
    light: bool = False,
    events: bool = False,
    limits_output: bool = True,
) -> dict[bytes, Route]:
    route = Route(
        kind,
        True,
        body,
        True,
        light,
        events,
        is_edited=body == JSON,
        limits_output=limits_output,
    )
    return dict.fromkeys(paths, route)


RESPONSES_PATH: Final = b"/v1/responses"

# The methods whose bodies an engine may run as inference. Some engines serve PUT like POST, so the
# rules for POST apply to all these methods.
_BODY_METHODS: Final = frozenset({b"POST", b"PUT", b"PATCH"})


def _native() -> dict[bytes, Route]:
    """Return the routes of engines' own APIs. Engines that share a path use it in one way."""
    found: dict[bytes, Route] = {}
    for path in NATIVE_PATHS:
        found.update(
            _inference(
                path.kind,
                path.path,
                light=path.light,
                events=path.streams_events,
                limits_output=path.path not in COUNTS_NATIVELY,
            )
        )
    return found


# The engine may store the response, so the request is not sent again after it may have run.
RESPONSES: Final = Route("responses", True, JSON, False, streams_events=True)

# POST, PUT and PATCH to these exact paths are inference requests.
POSTS: Final[dict[bytes, Route]] = {
    **_native(),
    **_inference("chat", b"/v1/chat/completions", events=True),
    **_inference("completions", b"/v1/completions", events=True),
    RESPONSES_PATH: RESPONSES,
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
UNKNOWN: Final = Route(
    "other", True, ANY, False, is_known=False, is_edited=False, limits_output=False
)
# GET, HEAD and OPTIONS to any other path.
OTHER_SAFE: Final = Route("other", False, ANY, True, light=True)
# GET, HEAD and OPTIONS for a stored response, such as GET /v1/responses/{id}.
STORED: Final = Route("responses", False, ANY, True, light=True)
# Other methods for a stored response, such as DELETE, or POST /v1/responses/{id}/cancel.
STORED_CHANGE: Final = Route("responses", False, ANY, False)

# The files and batches of OpenAI's API. If the router's batch server is enabled, it serves them.
BATCHES: Final = Route("batches", False, ANY, False)

# `OPTIONS *`, to which the router itself responds.
SERVER: Final = Route("other", False, ANY, True, light=True)
ASTERISK: Final = b"*"
# A preflight request of a browser, to which the router itself responds if CORS is on.
PREFLIGHT: Final = Route("other", False, ANY, True, light=True)
# GET and HEAD of `/health`, to which the router itself responds.
HEALTH: Final = Route("other", False, ANY, True, light=True)
HEALTH_PATH: Final = b"/health"

STORED_PREFIX: Final = b"/v1/responses/"
MODELS_PATH: Final = b"/v1/models"
_BATCH_PATHS: Final = frozenset({b"/v1/files", b"/v1/batches"})
_BATCHES_BELOW: Final = (b"/v1/files/", b"/v1/batches/")

# Paths whose responses are pictures, sound or vectors. The number of output tokens cannot be
# estimated from the size of such a response.
_DATA_BELOW: Final = (b"/v1/images/", b"/v1/videos", b"/v1/audio/", b"/api/embed")

# The paths below the usual base URL of clients: without `/v1`, and as they are with it. A client
# whose base URL lacks `/v1`, or has it twice, asks for the wrong ones.
_MEANT: Final[dict[bytes, bytes]] = {
    wrong: path
    for path in (*POSTS, MODELS_PATH, *_BATCH_PATHS)
    if path.startswith(b"/v1/")
    for wrong in (path, path[len(b"/v1") :])
}

_TRICKS: Final = (b"/./", b"/../", b"\\", b";", b"\x00")


def has_judged_body(method: bytes) -> bool:
    """Return whether the router reads the body of a request with this method."""
    return method == b"POST" or method in _BODY_METHODS


def may_answer_in_text(path: bytes) -> bool:
    """Return whether the responses of an unknown path may contain text of a model."""
    return not path.startswith(_DATA_BELOW)


def classify(method: bytes, target: bytes, allowed: frozenset[bytes]) -> tuple[Route, bytes]:
    """Return the route of a request and its path, decoded and without the query.

    A route with `inference` is returned only for a method whose body the router reads. `allowed`:
    the control paths that the configuration allows. Raises RouterError for a path that is not
    served or that could be read in two ways.
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
        raise RouterError(
            Reason.NOT_FOUND, "this path is not forwarded to the engines (allow_paths)"
        )
    meant = _MEANT.get(plain.removeprefix(b"/v1"))
    if meant is not None and meant != plain and plain not in POSTS and plain not in allowed:
        why = "has one /v1 too many" if plain.startswith(b"/v1/") else "lacks /v1"
        words = f"this path is not served: use {meant.decode()}; the client's base URL {why}"
        raise RouterError(Reason.NOT_FOUND, words)
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
    if plain == HEALTH_PATH and method in (b"GET", b"HEAD"):
        return HEALTH, plain
    return (OTHER_SAFE if safe else OTHER), plain


def _plain(path: bytes) -> bytes:
    """Return a path as an engine understands it.

    Raises RouterError for a path that could be read in two ways.
    """
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
        if trick in probe:
            raise RouterError(Reason.BAD_TARGET, "a path that can be read in two ways")
    if b"//" in decoded:
        words = "the path has a doubled slash; the client's base URL may have one too many"
        raise RouterError(Reason.BAD_TARGET, words)
    # An engine may ignore a line break or a space at the end of a path.
    if decoded[-1] <= 0x20 or b"\n" in decoded or b"\r" in decoded:
        raise RouterError(Reason.BAD_TARGET, "a line break, or a blank at the end, in the path")
    return decoded.rstrip(b"/") or b"/"
