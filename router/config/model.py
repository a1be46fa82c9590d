"""Declares every setting of the configuration file: its name, type, range, default and text.

This module only declares settings. `load` reads YAML and flags, and `checks` compares settings with
each other. `hedgerow config reference` prints these settings and the policies' options
(`reference`).

To declare a setting, add one field. The text of the setting is the comment on the field's line and
the comment lines directly above it. The setting's name is the field's name, without the suffix `_s`
of a duration, because a value in the file has a unit: `connect_s` here is `connect: 2s` in the
file. `Restart` marks settings that a reload cannot change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from router.config.units import DURATION, SIZE
from router.fleet.engines.common.registry import DIALECTS, ENGINES

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB

_LONGEST_S = 1e7  # 115 days; a longer duration is a mistake and would overflow the event loop
_IS_DURATION = msgspec.Meta(extra={"unit": DURATION})
_IS_SIZE = msgspec.Meta(extra={"unit": SIZE})

Restart = msgspec.Meta(extra={"restart": True})
Secret = Annotated[str, msgspec.Meta(extra={"secret": True})]

Seconds = Annotated[float, msgspec.Meta(gt=0, le=_LONGEST_S), _IS_DURATION]
SecondsOrOff = Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_S), _IS_DURATION]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=1)]
CountOrNone = Annotated[int, msgspec.Meta(ge=0)]
Bytes = Annotated[int, msgspec.Meta(ge=1), _IS_SIZE]
BytesOrNone = Annotated[int, msgspec.Meta(ge=0), _IS_SIZE]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Weight = Annotated[float, msgspec.Meta(gt=0, le=1e6)]


def in_file(name: str) -> str:
    """Returns the name in the configuration file of the field `name`."""
    return name.removesuffix("_s")


class Frozen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=in_file):
    """The base class of every section of the file.

    Subclasses repeat `frozen=True` because type checkers require it.
    """


if TYPE_CHECKING:
    Engine = str
    EnginePriority = str
    Dialect = str
else:  # the names of engines and dialects come from the files in router/fleet/engines
    Engine = Literal[tuple(ENGINES)]
    # The dialect (an engine's scale of priorities) in which priorities are sent to a replica.
    EnginePriority = Literal[(*DIALECTS, "none")]
    # The meaning of a number in a body's `priority`. engine: the meaning that the model's engines
    # give it.
    Dialect = Literal[("engine", "hedgerow", *DIALECTS)]
# The priority classes, the most urgent class first.
ClassName = Literal["critical", "high", "normal", "low", "batch"]


class KvEvents(Frozen, frozen=True):
    """Where an engine publishes its KV cache events (ZMQ, with the framing of vLLM and SGLang)."""

    # The address of the publisher's socket, such as tcp://gpu-1:5557. The data-parallel rank r
    # publishes on this port + r; `replay` likewise.
    endpoint: str
    # The address of the replay socket, such as tcp://gpu-1:5558. Unset: missed events are not read
    # again.
    replay: str | None = None
    topic: str = ""  # The ZMQ topic that the router subscribes to. "": all topics.


class Credential(Frozen, frozen=True):
    """A secret that replicas get instead of the client's. It is read at start and at every reload.

    One of `token`, `token_file` and `token_env` is needed.
    """

    token: Secret | None = None  # The secret.
    token_file: str | None = None  # A file with the secret.
    token_env: str | None = None  # The environment variable with the secret.
    # The header field for the secret. In `authorization`, the word `Bearer` is put before it.
    header: str = "authorization"
    # Send the client's own key, too, in the header fields that the secret does not use.
    forward_client_key: bool = False


class ReplicaSettings(Frozen, frozen=True):
    """The settings that a replica has in common with a source of discovery that names replicas."""

    # The models that the replica serves. If the list contains "*", the replica also accepts any
    # other name. Unset: the list is read from the replica's /v1/models.
    models: tuple[str, ...] | None = None
    # What happens to a request for a model that no replica lists. reject: the router refuses it.
    # forward: the engine decides. Unset: it depends on how the engine treats unknown names.
    unknown_models: Literal["reject", "forward"] | None = None
    weight: Weight = 1.0  # A replica with twice the weight gets twice as many requests.
    # Maximum number of requests at this replica at once. Unset: no limit.
    max_inflight: Count | None = None
    # Maximum tokens of a request's prompt and answer together. A request that clearly needs more
    # goes to replicas of its model with a longer context; if there are none, an engine answers it.
    # Unset: the replica reports the number.
    max_model_len: Count | None = None
    # Number of data-parallel ranks behind the address (vLLM, SGLang). Each rank is routed to like a
    # replica of its own, with the header x-data-parallel-rank; `weight` and `max_inflight` apply to
    # each. 1: the engine chooses the rank. Unset: the number that the engine's metrics show.
    data_parallel_ranks: Annotated[int, msgspec.Meta(ge=1, le=256)] | None = None
    engine: Engine | None = None  # The engine. Unset: it is detected from its responses.
    # The engine whose scale of priorities is used for requests to this replica. Unset: its own
    # engine. none: no priority is sent.
    priority: EnginePriority | None = None
    # The type of the replica, such as its GPU: the name of a type in the file of `hedgerow plan
    # --types`. The access log and the metrics have it.
    type: str = ""
    # The zone of the replica. The second copy of a hedged request prefers another zone.
    zone: str = ""
    # Whether the machine of the replica can be reclaimed at short notice. Among the replicas on
    # which no request waits, requests of class batch prefer such replicas, and requests of class
    # critical avoid them.
    spot: bool = False
    region: str = ""  # The region of the replica. "": the region of the router.
    pool: str = ""  # The pool of the replica, one of `pools`. "": no pool.
    # The secret for this replica. Unset: that of its pool, else `upstream.token`.
    credential: Credential | None = None


class Pool(Frozen, frozen=True):
    """A pool: the replicas that name it in `replicas.pool`. `models` can send requests to it."""

    credential: Credential | None = None  # The secret for the replicas. Unset: `upstream.token`.
    headers: dict[str, Secret] = {}  # Header fields that are added to each request.
    # The replicas belong to a provider of another company. They get nothing about the client and no
    # `upstream` settings, and no metrics are read from them. `models` of each must be set, and its
    # region is in no list of allowed regions unless it is stated.
    external: bool = False
    # A PEM file with the certificates to trust. Unset: those of `upstream`, or those of the system
    # if the pool is external.
    ca_file: str | None = None
    # The server name for TLS. Unset: as for `ca_file`, else the URL's host.
    server_name: str | None = None


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
    # Which requests get the same target. session: the requests of a conversation (`x-session-id`,
    # or the body's `session_id`, `prompt_cache_key` or `user`). flow: the requests of an API key's
    # user, or of a client address. request: none. A request without a session gets a random target.
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


class Replica(ReplicaSettings, frozen=True, kw_only=True):
    """One replica: an HTTP endpoint of an engine. A list item may also be only its URL."""

    # The replica's address: http://host:port or https://host:port, with an optional path prefix.
    url: str
    # The replica's name in logs and metrics. "": host:port, and the path prefix if the URL has one.
    id: str = ""
    # Where the replica publishes KV cache events. Unset: it is detected if `prefix.exact` is on.
    kv_events: KvEvents | None = None
    # The machine of the replica. The second copy of a hedged request prefers another machine.
    node: str = ""


class DnsName(ReplicaSettings, frozen=True, kw_only=True):
    """A DNS name whose records are replicas. A list item may also be only its URL."""

    # The address of the replicas, such as http://vllm.default.svc.cluster.local:8000. The router
    # looks up the host. Each of its addresses is a replica with the port and the path of this URL.
    url: str
    # The records that are read. address: A and AAAA. a, aaaa: only these. srv: SRV records; a
    # replica has the port and the weight of its record, and the URL has no port. Replicas of a
    # higher priority number get requests only while no replica of a lower number is available. If
    # a target has A and AAAA records, the A records are used.
    records: Literal["address", "a", "aaaa", "srv"] = "address"


class KubernetesReplicas(ReplicaSettings, frozen=True):
    """Replicas in a Kubernetes cluster: the endpoints of a Service, or pods with certain labels.

    Either `service` or `pods` is needed. Labels and annotations such as `hedgerow.dev/models` take
    precedence over the settings here.
    """

    service: str = ""  # The name of a Service, whose EndpointSlices are watched.
    pods: str = ""  # A label selector, such as app=vllm. The pods that it selects are watched.
    # The namespace of the Service or the pods. "": the namespace of the router's own pod, or of the
    # context in `kubeconfig`.
    namespace: str = ""
    # The port of the replicas: its number, or its name in the Service or the pods. "": their only
    # port.
    port: int | str = ""
    scheme: Literal["http", "https"] = "http"  # The scheme of the URLs of the replicas.
    path: str = ""  # The path prefix of the URLs of the replicas, such as /engine.
    # A kubeconfig file, for a router outside of the cluster. Unset: the service account of the
    # router's pod.
    kubeconfig: str | None = None
    context: str = ""  # The context in `kubeconfig`. "": its current context.

    @property
    def name(self) -> str:
        """The name of the source in logs and metrics."""
        parts = [self.context, self.namespace, self.service or self.pods]
        place = "/".join(filter(None, parts))
        return f"kubernetes:{place}:{self.port}" if self.port else f"kubernetes:{place}"


class Discovery(Frozen, frozen=True):
    """Sources of replicas that change while the router runs.

    A replica that a source no longer names is drained. An answer that fails or is empty changes
    nothing: the fleet keeps its replicas. If several sources name the same replica, the first of
    these counts: `replicas`, the admin API, `files`, `dns`, `kubernetes`.
    """

    # Files in YAML or JSON, each with a list of entries like those of `replicas`. A file is read
    # again when it changed and has then been the same for `interval`. Replace a file by a rename.
    files: tuple[str, ...] = ()
    dns: tuple[DnsName, ...] = ()  # DNS names. They need the optional package `dns`.
    # Services or pods in Kubernetes. They need the optional package `kubernetes`.
    kubernetes: tuple[KubernetesReplicas, ...] = ()
    # The name servers, such as 10.0.0.2 or 127.0.0.1:5353. Empty: those of /etc/resolv.conf.
    nameservers: tuple[str, ...] = ()
    interval_s: Seconds = 1.0  # Time between two reads of a file.
    timeout_s: Seconds = 5.0  # Maximum time of one lookup, read, or request to Kubernetes.
    # Records are looked up again when their TTL has passed, but not sooner than this.
    ttl_min_s: Seconds = 1.0
    # Records are looked up again after this time in any case. A watch of Kubernetes is started
    # again after this time.
    ttl_max_s: Seconds = 300.0
    # The time between two failed lookups of a name, two failed requests to Kubernetes, or two
    # attempts to use an invalid file, starts at `ttl_min` and doubles up to this.
    retry_max_s: Seconds = 60.0
    # Maximum number of replicas of one source. Replicas that are in the fleet already stay.
    replicas_max: Count = 1000

    @property
    def has_sources(self) -> bool:
        return bool(self.files or self.dns or self.kubernetes)


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


class Polling(Frozen, frozen=True):
    """How the metrics of engines are read."""

    # Time between two reads of a replica's metrics, with 20 % jitter. 0: never.
    interval_s: SecondsOrOff = 1.0
    timeout_s: Seconds = 1.0  # Maximum time that one read may take.
    size: Bytes = 4 * MiB  # A response with more bytes of metrics is ignored.
    stale_s: Seconds = 10.0  # Metrics that are older than this count as unknown.


class Prefix(Frozen, frozen=True):
    """What the router remembers about prompt prefixes in replicas' KV caches."""

    enabled: bool = True  # Hash prompt prefixes and remember which replica received them.
    # Size of the blocks into which a prompt is divided for hashing.
    block_bytes: Annotated[int, msgspec.Meta(ge=64, le=65536), _IS_SIZE] = 512
    blocks: Count = 512  # Maximum number of blocks at the beginning of a prompt that are hashed.
    # Maximum number of remembered pairs of block and replica, with about 150 bytes of memory each.
    entries: Count = 1_000_000
    kv_tokens: Count = 500_000  # KV cache size in tokens of a replica that does not report it.
    # Use a remembered prefix only for requests of the same API key (or the same client address).
    isolate_tenants: bool = False
    # Use the engines' KV cache events and token IDs instead of estimates. This needs the optional
    # packages `kv-events`.
    exact: bool = False
    tokenizers: dict[str, str] = {}  # For `exact`: each model's tokenizer folder or file.
    tokens_wait_s: SecondsOrOff = 0.02  # For `exact`: maximum wait for a prompt's token IDs.


class Price(Frozen, frozen=True):
    """The price of a million tokens of one model. All prices have the same currency.

    `classes.*.price_factor` multiplies the cost.
    """

    input: Amount  # The price of prompt tokens.
    # The price of prompt tokens from the engine's cache. Unset: the value of `input`.
    cached: Amount | None = None
    output: Amount = 0.0  # The price of output tokens.


class Usage(Frozen, frozen=True):
    """How tokens are counted."""

    # Ask engines for the token counts of streams (`stream_options.include_usage`). If the client
    # did not ask for these counts, the router removes them from the response.
    inject: bool = True
    # The price of a million tokens, by model; "*": of every other model. GET /usage on the admin
    # port and the budgets of keys compute costs from it. Tokens without a price cost nothing.
    prices: dict[str, Price] = {}
    # The SQLite file that keeps the usage of each day, and so the used amounts of budgets, over
    # restarts. Routers on one machine may share the file. Unset: a restart forgets the usage.
    file: Annotated[str, Restart] | None = None
    # Time between two writes of the file. A killed process loses at most the usage of this time.
    flush_s: Seconds = 5.0
    # Number of days with requests that the file keeps. Budgets need at least two months.
    retention_days: Annotated[int, msgspec.Meta(ge=62, le=36_600)] = 400


class Limits(Frozen, frozen=True):
    """Limits on the size of requests and responses, on connections, and on the router's memory.

    The defaults follow RFC 9112, nginx, Envoy and HAProxy.
    """

    request_line: Bytes = 8 * KiB  # A request with a longer request line returns 414.
    head: Bytes = 64 * KiB  # A larger request head returns 431.
    header_count: Count = 100  # A request with more header lines returns 431.
    body: Bytes = 64 * MiB  # A larger request body returns 413.
    # Maximum size of all request bodies in memory. A request that would exceed it returns 503.
    bodies_total: Bytes = 512 * MiB
    response_head: Bytes = 64 * KiB  # A larger response head is an error of the replica.
    # More header lines in a response are an error of the replica.
    response_header_count: Count = 200
    # Maximum bytes of a stream that are buffered while the router waits for generated content.
    response_hold: Bytes = 256 * KiB
    # Maximum bytes that are buffered of requests that a client sends before its current response
    # has ended. With more bytes, the connection is closed.
    early_data: BytesOrNone = 64 * KiB
    # Maximum number of client connections. 0: as many as the open-file limit allows.
    connections: CountOrNone = 0
    # With this many unsent bytes for a client, the router stops reading from its replica.
    write_high: Bytes = 64 * KiB
    # With this many unsent bytes for a client, the router reads from its replica again.
    write_low: BytesOrNone = 32 * KiB
    pool_idle: CountOrNone = 64  # Maximum number of idle connections to each replica.
    connecting: Count = 64  # Maximum number of connections to one replica being opened at once.
    retry_body: BytesOrNone = 1 * MiB  # A request with a larger body is not sent a second time.


class Timeouts(Frozen, frozen=True):
    """How long each step of a request may take."""

    head_s: Seconds = 10.0  # From a request's first byte to the end of its head.
    body_idle_s: Seconds = 30.0  # Maximum time between two pieces of a request body.
    # Minimum rate of a request body in bytes per second. A slower request is refused. 0: no
    # minimum.
    body_rate: Annotated[float, msgspec.Meta(ge=0)] = 1024.0
    body_rate_over_s: Seconds = 30.0  # The time over which `body_rate` is measured.
    keep_alive_s: Seconds = 75.0  # An idle client connection is closed after this time.
    connect_s: Seconds = 2.0  # Maximum time to open a connection to a replica.
    # Maximum time from sending a request to a replica until the first content of its stream.
    first_token_s: Seconds = 300.0
    # Maximum time from sending a request to a replica until the end of its response, if the
    # response is not a stream.
    whole_s: Seconds = 1800.0
    token_gap_s: Seconds = 60.0  # Maximum time between two pieces of a response.
    # Maximum time of a request from its arrival to the end of its response. 0: no limit.
    total_s: SecondsOrOff = 0.0
    write_stall_s: Seconds = 60.0  # A client that reads nothing for this time is disconnected.
    # An idle connection to a replica is closed after this time. It must be below the keep-alive
    # timeout of the replica (uvicorn: 5 s).
    pool_idle_s: Seconds = 3.0
    pool_age_s: Seconds = 600.0  # Maximum age of a connection to a replica, with 20 % jitter.
    # After this time without content, the router sends status 200 and then comments to the client
    # of a stream, so that the client does not give up. 0: never.
    commit_after_s: SecondsOrOff = 10.0


class Retry(Frozen, frozen=True):
    """How often a request is sent again after an attempt that failed without generated content.

    The defaults of budget and backoff are Envoy's.
    """

    attempts: Count = 3  # Maximum number of attempts of one request, including the first attempt.
    budget: Share = 0.2  # Maximum share of the requests in progress that may be retries.
    budget_min: CountOrNone = 3  # Number of retries in progress that are allowed in any case.
    # Maximum pause before the first retry that counts against the budget. The maximum doubles with
    # each retry. The pause is drawn at random between 0 and the maximum.
    backoff_s: SecondsOrOff = 0.025
    backoff_max_s: SecondsOrOff = 0.25  # The maximum pause is not doubled above this value.


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
    # Let clients ask for hedging with `x-hedge: on`. `x-hedge: off` is always obeyed.
    by_header: bool = False
    # Maximum share of all uncached prompt tokens that may be tokens of second copies.
    budget: Share = 0.05
    # No second copy is sent while the utilisation of the replicas is above this share.
    utilisation: Share = 0.7
    kv_usage: Share = 0.9  # A replica whose KV cache is fuller than this gets no second copy.
    # A request with more uncached prompt tokens than this is not hedged. 0: no limit.
    prompt_tokens: CountOrNone = 0
    choices: bool = False  # Also hedge requests for several choices (`n` above 1).
    # Cache warm-up: for this time after a replica came up or restarted, it gets copies of streams
    # whose prompt prefix it lacks, and that other replicas serve from their caches repeatedly. A
    # copy is sent when its stream has begun, is cancelled at its own first token, and never reaches
    # the client. Streams of every priority class can be copied. The copies use the tokens that
    # hedges leave of `budget`. 0: no such copies.
    warm_up_s: SecondsOrOff = 0.0


class ClassTimeouts(Frozen, frozen=True):
    """Timeouts of one priority class. Unset: the value in `timeouts` is used."""

    connect_s: Seconds | None = None  # Maximum time to open a connection to a replica.
    # Maximum time from sending a request to a replica until the first content of its stream.
    first_token_s: Seconds | None = None
    # Maximum time from sending a request to a replica until the end of its response, if the
    # response is not a stream.
    whole_s: Seconds | None = None
    token_gap_s: Seconds | None = None  # Maximum time between two pieces of a response.
    # Maximum time of a request from its arrival to the end of its response. 0: no limit.
    total_s: SecondsOrOff | None = None


class ClassSettings(Frozen, frozen=True):
    """The settings of one priority class.

    If `waiting`, `prefill_tokens`, `kv_usage` or `tpot_s` is unset, the value in `queue.gates` is
    used.
    """

    # Classes below `critical` send waiting requests in turns, in proportion to this weight. The
    # weight is also the worth of a token of this class: in the order `slide`, and in the gain that
    # /metrics reports.
    weight: Weight = 4.0
    # SLO for the time from arrival to first token. It is not a timeout: policies with deadlines
    # order requests by it, and /metrics shows how many requests meet it. An API key or a client can
    # set another SLO. A client's SLO cannot be below the SLO of the next more urgent class.
    ttft_slo_s: Seconds = 2.0
    # SLO for the time per output token. Token n is due at `ttft_slo` + (n - 1) x `tpot_slo`.
    tpot_slo_s: Seconds = 0.1
    # The cost of a request of this class is multiplied by this factor.
    price_factor: Amount = 1.0
    # What happens to a stream that cannot meet its TTFT SLO or the client's deadline, because even
    # the lower bound of the estimated time to first token is too late. refuse: it returns 429 at
    # once. serve: it is served late.
    late: Literal["serve", "refuse"] = "serve"
    # Maximum number of waiting requests of this class. If there are more, a request returns 429.
    depth: Count = 10_000
    # Maximum time in the queue. After it, the request returns 503. 0: no maximum.
    wait_s: SecondsOrOff = 0.0
    # Maximum time in the queue while no replica is up. After it, the request returns 503.
    absent_s: SecondsOrOff = 10.0
    # Every request of this class is sent to a replica within this time, if a replica is up and the
    # fleet is not overloaded.
    starvation_s: Seconds = 60.0
    # A replica on which this many requests wait for their first token gets no more requests of this
    # class.
    waiting: Count | None = None
    # A replica that has this many uncached prompt tokens to prefill gets no more requests of this
    # class.
    prefill_tokens: CountOrNone | None = None
    # A replica whose KV cache is fuller than this gets no more requests of this class.
    kv_usage: Share | None = None
    # A replica whose streams take longer than this per output token gets no more requests of this
    # class. 0: no limit.
    tpot_s: SecondsOrOff | None = None
    # Send requests of this class only to replicas on which no other request runs.
    idle: bool = False
    # Share of the pool's tokens that is reserved for this class if `queue.reservations` are on.
    share: Share = 0.4
    timeouts: ClassTimeouts = ClassTimeouts()


class CriticalClass(ClassSettings, frozen=True):
    weight: Weight = 16.0
    ttft_slo_s: Seconds = 0.25
    tpot_slo_s: Seconds = 0.05
    depth: Count = 1000
    starvation_s: Seconds = 5.0
    # A replica on which this many requests wait for their first token gets no more critical
    # requests. The value is higher than for other classes, whose requests then leave a place free.
    waiting: Count | None = 4
    kv_usage: Share | None = 1.0
    share: Share = 0.1


class HighClass(ClassSettings, frozen=True):
    weight: Weight = 8.0
    ttft_slo_s: Seconds = 0.5
    tpot_slo_s: Seconds = 0.05
    depth: Count = 5000
    starvation_s: Seconds = 15.0
    share: Share = 0.3


class LowClass(ClassSettings, frozen=True):
    weight: Weight = 2.0
    ttft_slo_s: Seconds = 10.0
    tpot_slo_s: Seconds = 0.2
    starvation_s: Seconds = 300.0
    kv_usage: Share | None = 0.9
    share: Share = 0.15


class BatchClass(ClassSettings, frozen=True):
    weight: Weight = 1.0
    ttft_slo_s: Seconds = 600.0
    tpot_slo_s: Seconds = 1.0
    depth: Count = 100_000
    # Maximum time in the queue while no replica is up. It is longer than for other classes, because
    # a restart that loads a large model takes minutes.
    absent_s: SecondsOrOff = 600.0
    starvation_s: Seconds = 1800.0
    # A replica on which this many requests wait for their first token gets no batch requests. With
    # many running requests, the limit is one for each 48 of them, up to that of `queue.gates`. The
    # limit is also that of `queue.gates` in three cases: a request of another class waits in the
    # queue for the same place, so that the place is given by weight; batch has less than its share
    # by weight; the oldest batch request has waited for a quarter of `batch_becomes_normal_after`.
    # With `prefill_tokens` above 0, many batch requests at once go to replicas with free slots.
    waiting: Count | None = 1
    prefill_tokens: CountOrNone | None = 0
    # Maximum share of the slots of a replica that batch requests of this router use, if the number
    # of slots is reported or learned; at least one slot. `hedgerow plan` prints the share that
    # leaves room for the forecast demand.
    slots: Share = 1.0
    kv_usage: Share | None = 0.85
    share: Share = 0.05


class Classes(Frozen, frozen=True):
    """The settings of each priority class."""

    critical: CriticalClass = CriticalClass()
    high: HighClass = HighClass()
    normal: ClassSettings = ClassSettings()
    low: LowClass = LowClass()
    batch: BatchClass = BatchClass()

    @property
    def by_name(self) -> dict[str, ClassSettings]:
        """The settings of each priority class by its name, the most urgent class first."""
        return {
            "critical": self.critical,
            "high": self.high,
            "normal": self.normal,
            "low": self.low,
            "batch": self.batch,
        }


class PriorityRule(Frozen, frozen=True):
    """A rule that gives requests a priority class. Every condition that is set must match."""

    priority: ClassName  # The priority class of the requests that match.
    header: str = ""  # The name of a header field that must be present. "": no condition.
    # The value that the header field must have. "": any value. `nightly-*`: any value that begins
    # with `nightly-`.
    value: str = ""
    # The model's name. "": any model. `name-*`: any model whose name begins with `name-`.
    model: str = ""
    network: str = ""  # The network of the client's address, such as 10.0.0.0/8. "": any network.


def _tiers() -> dict[str, ClassName]:
    return {"enterprise": "high", "pro": "normal", "free": "low"}


class Priority(Frozen, frozen=True):
    """Which priority class a request gets."""

    default: ClassName = "normal"  # The priority class of a request if nothing else sets it.
    # The most urgent class that a request can get. The API key or its tier can set another ceiling.
    ceiling: ClassName = "high"
    # The meaning of a number in a body's `priority`. engine: as the model's engines read it.
    # hedgerow: from 0 (critical) to 4 (batch). Otherwise: as the named engine reads it.
    dialect: Dialect = "engine"
    dialects: dict[str, Dialect] = {}  # Other values of `dialect` for single models, by model name.
    rules: tuple[PriorityRule, ...] = ()  # The first rule that matches a request applies.
    # The priority class of requests, by the tier of their API key.
    tiers: dict[str, ClassName] = msgspec.field(default_factory=_tiers)
    # The priority class for each value of the body's `service_tier`. Empty: the field is ignored.
    service_tier: dict[str, ClassName] = {}
    # A user's next request is less urgent while the user has other requests pending.
    steps: bool = True


class Keys(Frozen, frozen=True):
    """API keys. A key is sent in `Authorization: Bearer` or in `x-api-key`."""

    # The file with the hashes of the API keys. `hedgerow key` prints a line for it. The file is
    # read again at every reload.
    file: str | None = None
    # A folder whose files have lines of the same form, such as a mounted Kubernetes secret with one
    # file for each key. Its keys are used in addition to those of `file`.
    folder: str | None = None
    required: bool = False  # A request without a known key returns 401.
    forward: bool = False  # Forward the client's key to the replica.
    # The header that names the user of a key. Without the header, the body's `user` names the user.
    user_header: str = "x-user-id"
    names_users: bool = False  # Requests without a known key may also name users.


class Continuation(Frozen, frozen=True):
    """Continuation: if a replica fails during a stream, another replica generates the rest."""

    enabled: bool = False  # Turn continuation on.
    # Maximum size of one stream's generated text in memory. A longer stream is not continued.
    text: Bytes = 256 * KiB
    text_total: Bytes = 64 * MiB  # Maximum size of the generated text of all streams in memory.
    attempts: Count = 2  # Maximum number of times that one stream is continued.


class QueueGates(Frozen, frozen=True):
    """A replica gets another request while it is below `waiting` or below `prefill_tokens`."""

    waiting: Count = 3  # Number of requests on the replica that wait for their first token.
    # Number of uncached prompt tokens that the replica has to prefill. The default is the usual
    # prefill batch of an engine. 0: only `waiting` is compared.
    prefill_tokens: CountOrNone = 8192
    kv_usage: Share = 0.95  # A replica whose KV cache is fuller than this gets no more requests.
    # A replica whose streams take longer than this per output token gets no more requests. 0: no
    # limit.
    tpot_s: SecondsOrOff = 0.0


class QueueLimits(Frozen, frozen=True):
    """Limits on the whole queue. If a limit is exceeded, a request returns 429: the new request, or
    a request of the flow that uses most of the queue.
    """

    # Maximum number of waiting requests of one flow: an API key, a user of it, or a client address.
    flow: Count = 10_000
    bytes: Bytes = 256 * MiB  # Maximum size of the bodies of all waiting requests.


class Reservations(Frozen, frozen=True):
    """Shares of a pool's tokens that are reserved for priority classes. A pool is the set of the
    replicas that serve the same models.
    """

    enabled: bool = False  # Turn reservations on. `classes.*.share` sets the share of each class.
    strict: bool = False  # Do not let other classes use a share while its class does not need it.


class Preemption(Frozen, frozen=True):
    """Preemption: a request that has generated no content goes back into the queue, so that a
    request of the class `high` or `critical` is sent instead.
    """

    enabled: bool = False  # Turn preemption on.
    # How long an urgent request waits before it preempts another request.
    after_s: SecondsOrOff = 0.2
    # By how many priority classes the urgent request must be more urgent than the preempted one.
    gap: Annotated[int, msgspec.Meta(ge=1, le=4)] = 2
    budget: Share = 0.05  # Maximum ratio of preemptions to requests that are sent to replicas.
    times: Count = 2  # Maximum number of times that one request is preempted.
    # A request that is not streamed is not preempted when this time has passed since it was sent.
    whole_s: SecondsOrOff = 5.0


class Queue(Frozen, frozen=True):
    """The queue, in which requests wait while every replica is busy, and its order."""

    enabled: Annotated[bool, Restart] = True  # Turn the queue on.
    policy: str = "fair"  # The policy that orders the waiting requests.
    options: dict[str, Any] = {}  # The policy's options.
    # How the requests of different classes are ordered. weighted: critical first, then classes in
    # turns by weight. strict: the most urgent class first. together: the policy compares requests
    # of all classes. policy: the policy declares one of these.
    order: Literal["policy", "weighted", "strict", "together"] = "policy"
    # A waiting request becomes more urgent with time, up to the class `high`. This is the time from
    # the class `batch` to the class `normal`. 0: requests do not become more urgent. An older batch
    # request gets a larger share by weight, but the limits of class `batch` apply to it.
    batch_becomes_normal_after_s: SecondsOrOff = 600.0
    # When a replica has room, this many waiting requests are compared by how much of their prefix
    # is in its cache. 0: cached prefixes do not change the order.
    affinity: CountOrNone = 64
    # How often other requests with a cached prefix may be sent before a request that is next.
    skips: CountOrNone = 16
    # Use the timeout that SDKs send in a header as the deadline of requests that are not streamed.
    sdk_timeouts: bool = True
    gates: QueueGates = QueueGates()
    limits: QueueLimits = QueueLimits()
    reservations: Reservations = Reservations()
    preemption: Preemption = Preemption()

    @property
    def aging(self) -> float:
        """By how many priority classes per second a waiting request becomes more urgent.

        `normal` is two classes more urgent than `batch`.
        """
        after_s = self.batch_becomes_normal_after_s
        return 2.0 / after_s if after_s else 0.0


class Aborts(Frozen, frozen=True):
    """Calls of the abort endpoint of engines that continue a request after its connection closes
    (SGLang).
    """

    # Add a request ID (`rid`) to the body for engines that have an abort endpoint. When a request
    # is cancelled, call that endpoint.
    enabled: bool = True
    timeout_s: Seconds = 1.0  # Maximum time of a call.


class Health(Frozen, frozen=True):
    """How the router decides which replicas to use. A replica that is down or ejected gets no
    requests. A suspect replica gets requests only if no other replica can.
    """

    interval_s: Seconds = 5.0  # Time between two health probes of a replica, with 20 % jitter.
    timeout_s: Seconds = 5.0  # Maximum time that one probe may take.
    rise: Count = 1  # A replica that is down is up after this many successful probes in a row.
    fall: Count = 3  # A replica that is up is down after this many failed probes in a row.
    path: str | None = None  # The path of the probe. Unset: /health, then /v1/models.
    eject_after: Count = 5  # A replica is ejected after this many failed requests in a row.
    # Duration of a replica's first ejection, with 20 % jitter. The duration doubles with each
    # further ejection.
    eject_base_s: Seconds = 10.0
    eject_max_s: Seconds = 300.0  # Maximum duration of an ejection.
    # Maximum share of a model's replicas that are ejected at once. One replica is never ejected.
    eject_share: Share = 0.5
    # If less than this share of a model's replicas is usable, ejected replicas that are up are used
    # as well.
    panic_share: Share = 0.2
    # A replica that came up gets more and more requests during this time, then its full share.
    slow_start_s: SecondsOrOff = 30.0
    # A replica becomes suspect if a first token takes this many times the usual time, and the
    # replica shows no other progress meanwhile.
    suspect_factor: Annotated[float, msgspec.Meta(ge=1)] = 10.0
    # A replica does not become suspect before a first token has taken this time.
    suspect_min_s: Seconds = 5.0
    models_interval_s: Seconds = 30.0  # Time between two reads of /v1/models.


class Tls(Frozen, frozen=True):
    """HTTPS on the data port. Turning it on or off needs a restart."""

    cert: str  # The PEM file with the certificate chain.
    key: str  # The PEM file with the private key.


class AdminTls(Tls, frozen=True):
    """HTTPS on the admin port."""

    # A file with the PEM certificates of the authorities that sign the certificates of clients.
    # Unset: clients need no certificate.
    client_ca: str | None = None


class Admin(Frozen, frozen=True):
    """The admin port: metrics, health, the fleet, reload and drain. Clients must not reach it.

    `admin` may also be only the address. If a token is set, it is needed for every request that
    changes something, and for `/metrics`, `/usage` and `/queue`, which name tenants.
    """

    # The address. If other machines can reach it, a token or `tls.client_ca` must be set.
    listen: Annotated[str, Restart] = "127.0.0.1:9901"
    token: Secret | None = None  # Admin requests send it as `Authorization: Bearer`.
    token_file: str | None = None  # The same token, read from a file at start and at every reload.
    # A second address for probes and scrapers. It has only `/livez`, `/readyz` and `/metrics`, and
    # needs no token. The metrics name tenants. Unset: there is no second address.
    probes_listen: Annotated[str, Restart] | None = None
    tls: Annotated[AdminTls, Restart] | None = None


class Upstream(Frozen, frozen=True):
    """How the router connects to replicas."""

    # The token that is sent to replicas as `Authorization: Bearer`, instead of the client's token.
    token: Secret | None = None
    # A file with the token, instead of `token`. It is read at start and at every reload.
    token_file: str | None = None
    # A PEM file with the certificates to trust. Unset: the certificates that the system trusts.
    ca_file: str | None = None
    verify: bool = True  # Verify the replicas' certificates.
    # The server name for TLS and for verifying the certificate. Unset: the URL's host.
    server_name: str | None = None


class AccessLog(Frozen, frozen=True):
    """The access log, which has one line of JSON for each request."""

    path: str = "-"  # The file to which the log is written. "-": standard output. "": no log.
    flush_s: Seconds = 0.5  # Maximum time until a line is written.
    queue: Bytes = 4 * MiB  # If more bytes than this wait for a slow disk, lines are dropped.
    # How many pairs of blocks at the beginning of a prompt are logged as hashes. `hedgerow replay`
    # needs the hashes.
    blocks: Annotated[int, msgspec.Meta(ge=0, le=4096)] = 64
    # Salt of the hashes in the log, and of the prompts' hashes: several routers with the policy
    # `chwbl` need the same salt. "": a new random salt at each start.
    salt: Secret = ""


class Batches(Frozen, frozen=True):
    """OpenAI's /v1/files and /v1/batches, served by the router itself."""

    enabled: bool = False  # Turn the batch API on.
    # The folder for files and batches. No other router may use it. Its parent folder must exist.
    folder: str = "batches"
    file: Bytes = 512 * MiB  # Maximum size of an uploaded file.
    # Maximum number of lines in the file of one batch. Each line is one request.
    lines: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 50_000
    line: Bytes = 16 * MiB  # Maximum size of one line of a batch file.
    result: Bytes = 16 * MiB  # Maximum size of the response to one line of a batch file.
    # Maximum number of files of one owner (API key), including result files.
    files: Count = 1000
    files_total: Count = 100_000  # Maximum number of files of all owners.
    bytes: Bytes = 16 * GiB  # Maximum size of all files of one owner.
    bytes_total: Bytes = 256 * GiB  # Maximum size of all files.
    unfinished: Count = 100  # Maximum number of unfinished batches of one owner.
    unfinished_total: Count = 1000  # Maximum number of unfinished batches of all owners.
    # Maximum number of batch lines whose requests are in progress. The router sends fewer requests
    # while enough of them wait in the queue.
    concurrency: Count = 1024
    # How often the request of a batch line is sent if it fails. A refusal because the fleet is busy
    # does not count.
    attempts: Count = 5
    retention_s: Seconds = 30 * 86400.0  # Files and finished batches are deleted after this time.
    # Space that is left free on the disk. While less is free, uploads are refused and results wait.
    disk_free: BytesOrNone = 1024 * MiB


class Drain(Frozen, frozen=True):
    """What happens between the signal SIGTERM or SIGUSR2 and the end of the process."""

    # During this time after SIGTERM, /readyz returns 503, but requests are still accepted, and
    # each response closes its connection. After SIGUSR2 a new process serves instead, at once.
    lame_duck_s: SecondsOrOff = 5.0
    # Then the process accepts no new connection. Requests in progress may finish within this time.
    grace_s: SecondsOrOff = 600.0


class SpotMetadata(Frozen, frozen=True):
    """A metadata service that announces that its machine is reclaimed.

    Without `replica` and `node`, its notices apply to all spot replicas, because the router runs on
    their machine.
    """

    provider: Literal["aws", "gcp", "azure"]  # The cloud; it determines the paths and formats.
    url: str  # The address of the service, such as http://169.254.169.254.
    replica: str = ""  # The ID of the replica that is reclaimed.
    node: str = ""  # The `node` of the replicas that are reclaimed.
    machine: str = ""  # For azure: the name of the machine in events. "": any machine.


class Spot(Frozen, frozen=True):
    """How the router learns that a spot machine is reclaimed.

    The replicas of the machine get no new requests, and requests that would not end in time are
    moved to other replicas.
    """

    # A file that announces a reclaim when it appears. An empty file means all spot replicas. JSON
    # such as {"replicas": ["gpu-1:8000"], "seconds": 30} names replicas; `node` names a machine.
    # Deleting the file ends no reclaim; POST /replicas/ID/uncordon does. Unset: no file is read.
    notice_file: str | None = None
    metadata: tuple[SpotMetadata, ...] = ()  # The metadata services that the router queries.
    interval_s: Seconds = 1.0  # The time between two queries of each source.
    timeout_s: Seconds = (
        2.0  # Maximum time of one query of a metadata service, or read of the file.
    )
    notice_s: Seconds = 30.0  # Time until the machine goes away, if not stated.
    margin_s: SecondsOrOff = 2.0  # Requests should end this long before the machine goes away.


class Emulator(Frozen, frozen=True):
    """The fleet of the flag `--emulate N`: emulated engines in a separate process."""

    count: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0  # Number of emulated engines.
    model: str = "emulated"  # The model that the emulated engines serve.


class Config(Frozen, frozen=True):
    """The top-level settings of the configuration file."""

    listen: Annotated[str, Restart] = "0.0.0.0:8080"  # The data port, to which clients connect.
    admin: Admin = Admin()
    replicas: tuple[Replica, ...] = ()  # The replicas, which are endpoints of inference engines.
    discovery: Discovery = Discovery()
    pools: dict[str, Pool] = {}  # The pools of replicas, by name.
    # Names that clients may write in `model`, and the models that they stand for. A target must be
    # a name that replicas serve; it is not looked up here again.
    models: dict[str, ModelRoute] = {}
    region: str = ""  # The region of the router, which clients without a region prefer.
    # The zone of the router. Replicas of this zone in the router's region are nearest.
    zone: str = ""
    regions: Regions = Regions()
    routing: Routing = Routing()
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    retry: Retry = Retry()
    hedging: Hedging = Hedging()
    queue: Queue = Queue()
    classes: Classes = Classes()
    priority: Priority = Priority()
    keys: Keys = Keys()
    continuation: Continuation = Continuation()
    aborts: Aborts = Aborts()
    health: Health = Health()
    polling: Polling = Polling()
    prefix: Annotated[Prefix, Restart] = Prefix()
    usage: Usage = Usage()
    upstream: Upstream = Upstream()
    tls: Tls | None = None
    access_log: AccessLog = AccessLog()
    batches: Annotated[Batches, Restart] = Batches()
    drain: Drain = Drain()
    spot: Spot = Spot()
    emulate: Annotated[Emulator, Restart] = Emulator()
    # Reload when this file, or the files of keys, tokens or the certificate have changed.
    watch: bool = False
    # Paths of the engines' control endpoints that clients may use. All others return 404.
    allow_paths: tuple[str, ...] = ()
    # Networks of proxies whose X-Forwarded-* and x-request-id headers are trusted.
    trusted_proxies: tuple[str, ...] = ()
    # A client that closes its sending side after a request still gets the response.
    allow_half_close: bool = False
    # The router's name in the header `Via`. A request whose `Via` has this name is refused as a
    # loop.
    via: str = "hedgerow"
    # Add the header X-Router-Replica, which names the replica, to responses.
    debug_headers: bool = False
