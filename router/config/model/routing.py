"""Declares where a request goes, and what follows if a replica is slow or fails."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from router.config.model.replicas import Credential
from router.config.model.setting_types import (
    IS_SIZE,
    Bytes,
    Count,
    CountOrNone,
    Frozen,
    KiB,
    MiB,
    Seconds,
    SecondsOrOff,
    Secret,
    Share,
)


class ModelTarget(Frozen, frozen=True):
    """A model to which requests are sent. A list item may also be only the model's name."""

    # The model that is requested from replicas. "": the name that the client wrote.
    model: str = ""
    # Only the replicas of this pool get the requests. "": all replicas that serve the model. In
    # metrics and in `routing.models`, the model is then named `model@pool`.
    pool: str = ""


class SplitTarget(ModelTarget, frozen=True):
    """A model that gets a share of the requests."""

    # The share of the requests: this weight divided by the sum of all weights.
    weight: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 1.0


class ModelRoute(Frozen, frozen=True):
    """What a model name that clients write stands for. A value may also be only a model's name."""

    # The models that get the requests, each its share. Empty: the model of that name.
    targets: tuple[SplitTarget, ...] = ()
    # Which requests get the same target. session: the requests of a conversation (`x-session-id`, a
    # session header of coding agents, or the body's `session_id`, `prompt_cache_key`, `user` or
    # `metadata.user_id`). flow: the requests of an API key's user, or of a client address. request:
    # none. A request without a session gets a random target.
    sticky: Literal["session", "flow", "request"] = "session"
    # Where a request goes, in this order, if it cannot be served. Only regions that the API key may
    # use are considered.
    fallbacks: tuple[ModelTarget, ...] = ()
    # When a request goes to the next fallback. no_replica: no replica of the model is up.
    # queue_full: the queue is full, or all replicas are at their limits. deadline: the first token
    # would come too late. failure: all attempts failed before any content.
    fall_back_on: tuple[Literal["no_replica", "queue_full", "deadline", "failure"], ...] = (
        *("no_replica", "queue_full", "deadline", "failure"),
    )
    # Write the client's name into the member `model` of responses. Otherwise responses have the
    # name that the replica writes.
    restore_name: bool = False


class PolicyChoice(Frozen, frozen=True):
    """The routing policy for one model."""

    policy: str  # The name of a routing policy.
    options: dict[str, Any] = {}  # The policy's options.


class Routing(Frozen, frozen=True):
    """How the router chooses the replica for a request."""

    policy: str = "kv_aware"  # The routing policy.
    options: dict[str, Any] = {}  # The policy's options.
    models: dict[str, PolicyChoice] = {}  # Other policies for single models, by model name.
    # Number of replicas, drawn at random, that a policy compares. Replicas that have the prompt's
    # prefix in their cache are compared in addition.
    sample: Count = 64


class Prefix(Frozen, frozen=True):
    """What the router remembers about prompt prefixes in replicas' KV caches."""

    enabled: bool = True  # Hash prompt prefixes and remember which replica received them.
    # Size of the blocks into which a prompt is divided for hashing.
    block_bytes: Annotated[int, msgspec.Meta(ge=64, le=65536), IS_SIZE] = 512
    blocks: Count = 512  # Maximum number of blocks at the beginning of a prompt that are hashed.
    # Maximum number of remembered pairs of block and replica, with about 150 bytes of memory each.
    entries: Count = 1_000_000
    kv_tokens: Count = 500_000  # KV cache size in tokens of a replica that does not report it.
    # Use a remembered prefix only for requests of the same API key (or the same client address).
    isolate_tenants: bool = False
    # Use the engines' KV cache events and token IDs instead of estimates, where the events are
    # complete. This needs the optional packages `kv-events`.
    exact: bool = False
    tokenizers: dict[str, str] = {}  # For `exact`: each model's tokenizer folder or file.
    tokens_wait_s: SecondsOrOff = 0.02  # For `exact`: maximum wait for a prompt's token IDs.


class Pool(Frozen, frozen=True):
    """A pool: the replicas that name it in `replicas.pool`. `models` can send requests to it."""

    credential: Credential | None = None  # The secret for the replicas. Unset: `upstream.token`.
    headers: dict[str, Secret] = {}  # Header fields that are added to each request.
    # The replicas belong to a provider of another company. They get nothing about the client and no
    # `upstream` settings, and no metrics are read from them. `models` of each must be set, and its
    # region is in no list of allowed regions unless it is stated.
    external: bool = False
    # Ask for the token counts of streams (`stream_options.include_usage`; see `usage.inject`).
    # Unset: the engines that are known to support it are asked, and all external replicas.
    include_usage: bool | None = None
    # A PEM file with the certificates to trust. Unset: those of `upstream`, or those of the system
    # if the pool is external.
    ca_file: str | None = None
    # The server name for TLS. Unset: as for `ca_file`, else the URL's host.
    server_name: str | None = None


class RegionDistance(Frozen, frozen=True):
    """The distance between two regions, in both directions."""

    start: str  # A region.
    end: str  # Another region.
    rtt_s: Seconds  # The round-trip time between the two regions.


class Regions(Frozen, frozen=True):
    """Which region a request goes to. The nearest region is used until it is full."""

    # A region is full for a model when this share of its slots or of its KV caches is in use.
    # Requests for the model then go to the next nearest region.
    spill_at: Share = 0.7
    return_at: Share = 0.6  # A full region is used again below this utilisation.
    # The regions of clients by their network, such as 10.0.0.0/8. The region in the header
    # `x-region` and the region of the API key take precedence.
    networks: dict[str, str] = {}
    # Distances between regions. Unset: the measured round-trip times from the router.
    distances: tuple[RegionDistance, ...] = ()


class Hedging(Frozen, frozen=True):
    """When a request is hedged: a second copy is sent to another replica, and the first response
    is used.
    """

    policy: str = "adaptive"  # The hedging policy.
    options: dict[str, Any] = {}  # The policy's options.
    # Send no second copies, but count how many would have been sent and how much time they save.
    dry_run: bool = False
    # The priority classes whose requests may be hedged.
    classes: tuple[str, ...] = ("critical", "high")
    # The longest time from the dispatch of a class's request to its copy, for single classes. 0s:
    # both copies are sent at once. The policy may send the copy earlier.
    delay: dict[str, SecondsOrOff] = {}
    # Let clients ask for hedging with `x-hedge: on`. `x-hedge: off` is always obeyed.
    by_header: bool = False
    # Maximum share of all uncached prompt tokens that may be tokens of second copies. Copies at
    # idle replicas do not count in this share. 0: no copies, not even at idle replicas.
    budget: Share = 0.05
    # No second copy is sent while the utilisation of the replicas is above this share.
    utilisation: Share = 0.7
    kv_usage: Share = 0.9  # A replica whose KV cache is fuller than this gets no second copy.
    # A request with more uncached prompt tokens than this is not hedged. 0: no limit.
    prompt_tokens: CountOrNone = 0
    choices: bool = False  # Also hedge requests for several choices (`n` above 1).


class Retry(Frozen, frozen=True):
    """How often a request is sent again after an attempt that failed without generated content.

    These requests are repeated, always at another replica. (1) A request that could not be sent,
    because the replica refuses the connection or closes a new one. (2) On the budget: a request
    whose connection was lost, and a stream that ends or reports an error before any content. Not
    if two replicas have lost the request. (3) An answer 429 or 503: on the budget, if all other
    replicas have given such an answer lately. (4) An answer 401, 403 or 407, if the router has a
    credential of its own for the replica (`credential`, `upstream.token`). If no replica accepts
    it, the client gets 502 `credential_refused`. (5) Once: any other 401, 403, 404, 405, 407 or
    410, and other 4xx from the third one in a row. (6) Once, on the budget: 5xx, and a 200 whose
    body is only an `error`.

    If the other replica answers, an error of (4) to (6) counts against the first replica. Three in
    a row, for several clients or with several bodies, eject it. If the other replica gives an error
    as well, the client gets the first one. If the kind is the same, the error counts against no
    replica, and up to four more errors of the first replica are not repeated. The budget is not
    needed if the replica has failed three times in a row.

    Nothing is repeated after content, after a timeout, if the body is larger than
    `limits.retry_body`, or if the request needs one replica. A request to `/v1/responses` is not
    repeated in the cases (2) and (6), because the engine may have stored the response. A request
    whose pooled connection was already closed goes to the same replica once more.

    The defaults of budget and backoff are Envoy's.
    """

    attempts: Count = 3  # Maximum number of attempts of one request, including the first attempt.
    budget: Share = 0.2  # Maximum share of the requests in progress that may be retries.
    budget_min: CountOrNone = 3  # Number of retries in progress that are allowed in any case.
    # Maximum pause before the first retry that counts against the budget. The maximum doubles with
    # each retry. The pause is drawn at random between 0 and the maximum.
    backoff_s: SecondsOrOff = 0.025
    backoff_max_s: SecondsOrOff = 0.25  # The maximum pause is not doubled above this value.


class Continuation(Frozen, frozen=True):
    """Continuation: if a replica fails during a stream, another replica generates the rest."""

    enabled: bool = False  # Turn continuation on.
    # Maximum size of one stream's generated text in memory. A longer stream is not continued.
    text: Bytes = 256 * KiB
    text_total: Bytes = 64 * MiB  # Maximum size of the generated text of all streams in memory.
    # Maximum number of times that one stream is continued. If two replicas have lost the request,
    # it is not continued again, because the request itself may crash engines.
    attempts: Count = 2
