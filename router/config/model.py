"""Every setting: its name, type, range, default and text. The configuration file has this shape.

This module only declares settings. `load` reads YAML and flags, and `checks` compares settings with
each other. `hedgerow config reference` prints these settings and the policies' options
(`reference`).

To declare a setting, add one field. The field's text is the comment on its line and the comment
lines directly above it. The name in the file is the field's name, without the suffix `_s` of a
duration, because the value in the file has a unit (`connect_s` here is `connect: 2s` in the file).
`Restart` marks settings that a reload cannot change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from router.config.units import DURATION, SIZE
from router.fleet.engines.common.registry import DIALECTS, ENGINES

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB

_LONGEST_S = 1e7  # 115 days; a longer timer is a mistake and would overflow the event loop
_IS_DURATION = msgspec.Meta(extra={"unit": DURATION})
_IS_SIZE = msgspec.Meta(extra={"unit": SIZE})

Restart = msgspec.Meta(extra={"restart": True})

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
    """The name of a field in the configuration file."""
    return name.removesuffix("_s")


class Frozen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=in_file):
    """Base of every section. Subclasses repeat `frozen=True` because type checkers ask for it."""


if TYPE_CHECKING:
    Engine = str
    EnginePriority = str
    Dialect = str
else:  # the list comes from the files in router/fleet/engines
    Engine = Literal[tuple(ENGINES)]
    # The dialect in which priorities are sent to a replica.
    EnginePriority = Literal[(*DIALECTS, "none")]
    # The meaning of a number in a body's `priority`. engine: as for the model's engines.
    Dialect = Literal[("engine", "hedgerow", *DIALECTS)]
ClassName = Literal["critical", "high", "normal", "low", "batch"]  # the most urgent class first


class KvEvents(Frozen, frozen=True):
    """Where an engine publishes its KV cache events (ZMQ, with the framing of vLLM and SGLang)."""

    endpoint: str  # The publisher, such as tcp://gpu-1:5557.
    replay: str | None = None  # The replay socket, such as tcp://gpu-1:5558. Unset: no replay.
    topic: str = ""  # The topic to subscribe to. "": all topics.


class Replica(Frozen, frozen=True):
    """One engine endpoint. A list item may also be the bare URL."""

    # The replica's address: http://host:port or https://host:port, with an optional path prefix.
    url: str
    id: str = ""  # Name in logs and metrics. "": host:port, and the path prefix if the URL has one.
    # The models the replica serves. If "*" is among them, it accepts any other name, too. Unset:
    # read from the replica's /v1/models.
    models: tuple[str, ...] | None = None
    # What happens to a model name that no replica lists: the router rejects it, or forwards it and
    # the engine decides. Unset: as the engine treats unknown names.
    unknown_models: Literal["reject", "forward"] | None = None
    weight: Weight = 1.0  # A replica with twice the weight gets twice the requests.
    max_inflight: Count | None = None  # Most attempts at this replica at once. Unset: no limit.
    engine: Engine | None = None  # The engine. Unset: detected from its answers.
    # Where the replica publishes KV cache events. Unset: detected if `prefix.exact` is on.
    kv_events: KvEvents | None = None
    # The dialect of priorities sent to it. Unset: the engine's own. none: no priority is sent.
    priority: EnginePriority | None = None
    # The machine of the replica. A second copy of a request prefers another machine.
    node: str = ""
    zone: str = ""  # The zone of the replica. A second copy of a request prefers another zone.


class PolicyChoice(Frozen, frozen=True):
    """The routing policy for one model."""

    policy: str  # The name of a routing policy.
    options: dict[str, Any] = {}  # The policy's options.


class Routing(Frozen, frozen=True):
    """Which replica a request goes to."""

    policy: str = "kv_aware"  # The routing policy.
    options: dict[str, Any] = {}  # The policy's options.
    models: dict[str, PolicyChoice] = {}  # Another policy for single models.
    # Number of replicas that a policy compares. They are drawn at random; replicas that hold the
    # prefix are compared in addition.
    sample: Count = 64


class Polling(Frozen, frozen=True):
    """How the metrics of engines are read."""

    # Time between two reads of a replica's metrics, with 20 % jitter. 0: never.
    interval_s: SecondsOrOff = 1.0
    timeout_s: Seconds = 1.0  # Longest time one read may take.
    size: Bytes = 4 * MiB  # A longer metrics answer is ignored.
    stale_s: Seconds = 10.0  # Metrics that are older than this count as unknown.


class Prefix(Frozen, frozen=True):
    """What the router remembers about prompt prefixes in replicas' KV caches."""

    enabled: bool = True  # Hash prompt prefixes and remember which replica received them.
    # Bytes of the prompt in one block.
    block_bytes: Annotated[int, msgspec.Meta(ge=64, le=65536), _IS_SIZE] = 512
    blocks: Count = 512  # Leading blocks of a prompt that are hashed.
    entries: Count = 1_000_000  # Most pairs of block and replica, about 150 bytes of memory each.
    kv_tokens: Count = 500_000  # KV cache size of a replica that does not report it, in tokens.
    # Share remembered prefixes within one API key (or one client address) only.
    isolate_tenants: bool = False
    # Use KV cache events and token IDs instead of estimates. Needs the extra `kv-events`.
    exact: bool = False
    tokenizers: dict[str, str] = {}  # For `exact`: each model's tokenizer folder or file.
    tokens_wait_s: SecondsOrOff = 0.02  # For `exact`: longest wait for a prompt's token IDs.


class Price(Frozen, frozen=True):
    """The price of a million tokens of one model. All prices have the same currency."""

    input: Amount  # Prompt tokens.
    cached: Amount | None = None  # Prompt tokens from the engine's cache. Unset: as `input`.
    output: Amount = 0.0  # Output tokens.


class Usage(Frozen, frozen=True):
    """How tokens are counted."""

    # Ask engines for the token counts of streams (`stream_options.include_usage`) and remove the
    # extra chunk again if the client did not ask for it.
    inject: bool = True
    prices: dict[str, Price] = {}  # By model. GET /usage computes costs from them.


class Limits(Frozen, frozen=True):
    """Bounds on what clients and replicas can make the router hold in memory.

    The defaults follow RFC 9112, nginx, Envoy and HAProxy.
    """

    request_line: Bytes = 8 * KiB  # A longer request line or header line returns 414 or 431.
    head: Bytes = 64 * KiB  # A larger request head returns 431.
    header_count: Count = 100  # More header lines in a request return 431.
    body: Bytes = 64 * MiB  # A larger request body returns 413.
    bodies_total: Bytes = 512 * MiB  # Request bodies in memory at once. More return 503.
    response_head: Bytes = 64 * KiB  # A larger response head is an error of the replica.
    response_header_count: Count = 200  # More header lines are an error of the replica.
    # Bytes of one response that are held before its first content event.
    response_hold: Bytes = 256 * KiB
    early_data: BytesOrNone = 64 * KiB  # Pipelined bytes kept while a response is under way.
    # Client connections at once. 0: as many as the open-file limit allows.
    connections: CountOrNone = 0
    write_high: Bytes = 64 * KiB  # Bytes waiting for a client at which its replica is paused.
    write_low: BytesOrNone = 32 * KiB  # Bytes waiting for a client at which the replica resumes.
    pool_idle: CountOrNone = 64  # Idle connections kept to each replica.
    connecting: Count = 64  # Connections to one replica that are opened at once.
    retry_body: BytesOrNone = 1 * MiB  # A larger body is not kept for another attempt.


class Timeouts(Frozen, frozen=True):
    """How long each step of a request may take."""

    head_s: Seconds = 10.0  # From a request's first byte to the end of its head.
    body_idle_s: Seconds = 30.0  # Between two pieces of a request body.
    # A request body that arrives more slowly is refused, in bytes per second. 0: no minimum.
    body_rate: Annotated[float, msgspec.Meta(ge=0)] = 1024.0
    body_rate_over_s: Seconds = 30.0  # The time over which `body_rate` is measured.
    keep_alive_s: Seconds = 75.0  # An idle client connection is closed after this time.
    connect_s: Seconds = 2.0  # Opening a connection to a replica.
    first_token_s: Seconds = 300.0  # From dispatch to the first content of a stream.
    whole_s: Seconds = 1800.0  # From dispatch to the end of an answer that is not streamed.
    token_gap_s: Seconds = 60.0  # Between two pieces of a response.
    total_s: SecondsOrOff = 0.0  # A whole request. 0: no limit.
    write_stall_s: Seconds = 60.0  # A client that reads nothing for this time is disconnected.
    # An idle connection to a replica is closed after this time. It must be below the keep-alive
    # timeout of the replica (uvicorn: 5 s).
    pool_idle_s: Seconds = 3.0
    pool_age_s: Seconds = 600.0  # Longest life of a connection to a replica, with 20 % jitter.
    # A stream without content gets status 200 and comments after this time, so that the client does
    # not give up. 0: never.
    commit_after_s: SecondsOrOff = 10.0


class Retry(Frozen, frozen=True):
    """Further attempts of a request whose attempt failed before any content.

    The defaults of budget and backoff are Envoy's.
    """

    attempts: Count = 3  # Attempts of one request, the first included.
    budget: Share = 0.2  # Share of the requests under way that may be retries.
    budget_min: CountOrNone = 3  # Retries under way that are always allowed.
    # Longest pause before the first retry that is charged to the budget. It doubles with each
    # retry. The pause is drawn between 0 and this value.
    backoff_s: SecondsOrOff = 0.025
    backoff_max_s: SecondsOrOff = 0.25  # The longest value to which the pause is doubled.


class Hedging(Frozen, frozen=True):
    """When a second copy of a request races the first. Tokens are uncached prompt tokens."""

    policy: str = "adaptive"  # The hedging policy.
    options: dict[str, Any] = {}  # The policy's options.
    dry_run: bool = False  # Send no copies; count those that would have been sent, and their gain.
    classes: tuple[str, ...] = ("critical", "high")  # Classes whose requests may be hedged.
    # Let clients ask for hedging with `x-hedge: on`. `x-hedge: off` is always obeyed.
    by_header: bool = False
    budget: Share = 0.05  # Share of all prefill tokens that copies may cost.
    utilisation: Share = 0.7  # No copies while the pool is busier than this.
    kv_usage: Share = 0.9  # A replica whose KV cache is fuller gets no copy.
    prompt_tokens: CountOrNone = 0  # A longer prompt is not hedged. 0: no limit.
    choices: bool = False  # Hedge requests for several choices (`n` above 1), too.


class ClassTimeouts(Frozen, frozen=True):
    """Timeouts of one class. Unset: the value in `timeouts`."""

    connect_s: Seconds | None = None  # Opening a connection to a replica.
    first_token_s: Seconds | None = None  # From dispatch to the first content of a stream.
    whole_s: Seconds | None = None  # From dispatch to the end of an answer that is not streamed.
    token_gap_s: Seconds | None = None  # Between two pieces of a response.
    total_s: SecondsOrOff | None = None  # A whole request. 0: no limit.


class ClassSettings(Frozen, frozen=True):
    """The settings of one class. An unset limit of a replica is that of `queue.gates`."""

    # Share of turns where classes compete. The class `critical` goes first without a turn. It is
    # also the worth of a token of this class: for the order `slide`, and in the gain of /metrics.
    weight: Weight = 4.0
    # SLO for the time to first token, from the arrival. It is no timeout: it orders requests where
    # a policy uses deadlines, and /metrics shows how many requests meet it. A client or a key can
    # state another one, a client none below the SLO of the next more urgent class.
    ttft_slo_s: Seconds = 2.0
    # SLO for the time per output token. Token n is due at `ttft_slo` + (n - 1) x `tpot_slo`.
    tpot_slo_s: Seconds = 0.1
    # What happens to a stream whose first token cannot meet its TTFT SLO or the client's deadline,
    # by the lower bound of its estimate. refuse: it returns 429 at once. serve: it is served late.
    late: Literal["serve", "refuse"] = "serve"
    depth: Count = 10_000  # Requests that wait at once. More return 429.
    # Longest wait in the queue; then the request returns 503. 0: as long as the client waits.
    wait_s: SecondsOrOff = 0.0
    # Longest wait while no replica is up; then the request returns 503.
    absent_s: SecondsOrOff = 10.0
    starvation_s: Seconds = 60.0  # Every request is sent within this time, if a replica is up.
    # A replica with so many requests without a first token gets no more requests of this class.
    waiting: Count | None = None
    # A replica with so many uncached prompt tokens to prefill gets no more requests of this class.
    prefill_tokens: CountOrNone | None = None
    # A replica whose KV cache is fuller gets no more requests of this class.
    kv_usage: Share | None = None
    # A replica whose streams take longer per output token gets no more requests of this class. 0:
    # off.
    tpot_s: SecondsOrOff | None = None
    idle: bool = False  # Send this class only to replicas on which nothing runs.
    share: Share = 0.4  # Share of the pool's tokens, if `queue.reservations` are on.
    timeouts: ClassTimeouts = ClassTimeouts()


class CriticalClass(ClassSettings, frozen=True):
    weight: Weight = 16.0
    ttft_slo_s: Seconds = 0.25
    tpot_slo_s: Seconds = 0.05
    depth: Count = 1000
    starvation_s: Seconds = 5.0
    # One more than for other classes, so that their requests do not block a critical one.
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
    # Longer than for other classes: a restart that loads a large model takes minutes.
    absent_s: SecondsOrOff = 600.0
    starvation_s: Seconds = 1800.0
    # Batch requests go only to replicas on which no request waits for its first token. With more
    # `prefill_tokens`, they go in bulk to replicas with free slots.
    waiting: Count | None = 1
    prefill_tokens: CountOrNone | None = 0
    kv_usage: Share | None = 0.85
    share: Share = 0.05


class Classes(Frozen, frozen=True):
    """The settings of each class."""

    critical: CriticalClass = CriticalClass()
    high: HighClass = HighClass()
    normal: ClassSettings = ClassSettings()
    low: LowClass = LowClass()
    batch: BatchClass = BatchClass()

    @property
    def by_name(self) -> dict[str, ClassSettings]:
        """The settings of each class, the most urgent class first."""
        return {
            "critical": self.critical,
            "high": self.high,
            "normal": self.normal,
            "low": self.low,
            "batch": self.batch,
        }


class PriorityRule(Frozen, frozen=True):
    """A rule that gives requests a class. Every condition that is set must match."""

    priority: ClassName  # The class of requests that match.
    header: str = ""  # The name of a header field that must be present. "": no condition.
    value: str = ""  # The field's value. "": any. `nightly-*`: any that begins with `nightly-`.
    model: str = ""  # The model's name, or `name-*`. "": any.
    network: str = ""  # The client's network, such as 10.0.0.0/8. "": any.


def _tiers() -> dict[str, ClassName]:
    return {"enterprise": "high", "pro": "normal", "free": "low"}


class Priority(Frozen, frozen=True):
    """Which class a request gets."""

    default: ClassName = "normal"  # The class of a request that states none.
    # The most urgent class a request can get, unless its API key or the key's tier sets another.
    ceiling: ClassName = "high"
    dialect: Dialect = "engine"  # What a number in a body's `priority` means.
    dialects: dict[str, Dialect] = {}  # Another dialect for single models.
    rules: tuple[PriorityRule, ...] = ()  # The first rule that matches a request applies.
    # The class of requests by the tier of their API key.
    tiers: dict[str, ClassName] = msgspec.field(default_factory=_tiers)
    # What values of the body's `service_tier` mean. Empty: the field is ignored.
    service_tier: dict[str, ClassName] = {}
    # A user's next request is less urgent while the user has other requests pending.
    steps: bool = True


class Keys(Frozen, frozen=True):
    """API keys. A key is sent in `Authorization: Bearer` or in `x-api-key`."""

    file: str | None = None  # Made by `hedgerow key`. It is read again at every reload.
    required: bool = False  # A request without a known key returns 401.
    forward: bool = False  # Forward the client's key to the replica.
    user_header: str = "x-user-id"  # The header that names the user. Without it: the body's `user`.
    names_users: bool = False  # Requests without a known key may name users, too.


class Continuation(Frozen, frozen=True):
    """Another replica finishes a stream whose replica failed."""

    enabled: bool = False  # Turn continuation on.
    text: Bytes = 256 * KiB  # Text that is kept of one stream. A longer stream is not continued.
    text_total: Bytes = 64 * MiB  # Text that is kept of all streams together.
    attempts: Count = 2  # Most continuations of one stream.


class QueueGates(Frozen, frozen=True):
    """A replica gets another request while it is below `waiting` or below `prefill_tokens`."""

    waiting: Count = 3  # Requests without a first token.
    # Uncached prompt tokens; the default is one batch of an engine. 0: only `waiting` counts.
    prefill_tokens: CountOrNone = 8192
    kv_usage: Share = 0.95  # A replica whose KV cache is fuller gets no more requests.
    # A replica whose streams take longer per output token gets no more requests. 0: off.
    tpot_s: SecondsOrOff = 0.0


class QueueLimits(Frozen, frozen=True):
    """Bounds on the whole queue. If one is exceeded, a request returns 429: one of the flow that
    holds most, or the new one.
    """

    # Waiting requests of one flow: an API key, one of its users, or a client address.
    flow: Count = 10_000
    bytes: Bytes = 256 * MiB  # Size of the bodies of all waiting requests.


class Reservations(Frozen, frozen=True):
    """Shares of a pool's tokens that are reserved for a class while it needs them."""

    enabled: bool = False  # Turn reservations on. `classes.*.share` has the shares.
    strict: bool = False  # Other classes cannot borrow an unused share.


class Preemption(Frozen, frozen=True):
    """Preemption: a request without content is put back into the queue, so that a high or critical
    request is sent instead.
    """

    enabled: bool = False  # Turn preemption on.
    after_s: SecondsOrOff = 0.2  # How long an urgent request waits before it preempts another.
    # The least distance between the two classes.
    gap: Annotated[int, msgspec.Meta(ge=1, le=4)] = 2
    budget: Share = 0.05  # Most preemptions for each dispatch.
    times: Count = 2  # How often one request can be preempted.
    # A request that is not streamed is not preempted later than this after its dispatch.
    whole_s: SecondsOrOff = 5.0


class Queue(Frozen, frozen=True):
    """In which order requests are sent while every replica is busy."""

    enabled: Annotated[bool, Restart] = True  # Turn the queue on.
    policy: str = "fair"  # The order policy.
    options: dict[str, Any] = {}  # The order's options.
    # How classes compete. weighted: critical first, then turns by weight. strict: the most urgent
    # class first. together: the policy compares requests of all classes. policy: as the policy
    # declares it.
    order: Literal["policy", "weighted", "strict", "together"] = "policy"
    # A waiting request becomes more urgent at this rate, up to the class `high`. 0: never.
    batch_becomes_normal_after_s: SecondsOrOff = 600.0
    # Waiting requests that are compared by cached prefix when a replica is free. 0: none.
    affinity: CountOrNone = 64
    skips: CountOrNone = 16  # How often a request can be passed over for one with a cached prefix.
    # Use the timeout that SDKs announce in a header as the deadline of requests without a stream.
    sdk_timeouts: bool = True
    gates: QueueGates = QueueGates()
    limits: QueueLimits = QueueLimits()
    reservations: Reservations = Reservations()
    preemption: Preemption = Preemption()

    @property
    def aging(self) -> float:
        """Levels per second; between `batch` and `normal` there are two."""
        after_s = self.batch_becomes_normal_after_s
        return 2.0 / after_s if after_s else 0.0


class Aborts(Frozen, frozen=True):
    """Abort calls, for engines that continue a request after its connection closes (SGLang)."""

    # Add a request ID (`rid`) to the body for such engines, and call their abort endpoint.
    enabled: bool = True
    timeout_s: Seconds = 1.0  # Longest time for the call.


class Health(Frozen, frozen=True):
    """Which replicas are used."""

    interval_s: Seconds = 5.0  # Time between two active probes, with 20 % jitter.
    timeout_s: Seconds = 5.0  # Longest time one probe may take.
    rise: Count = 1  # Good probes in a row that bring a replica up.
    fall: Count = 3  # Failed probes in a row that take a replica down.
    path: str | None = None  # The path of the probe. Unset: /health, then /v1/models.
    eject_after: Count = 5  # Failed requests in a row that eject a replica.
    eject_base_s: Seconds = 10.0  # The first ejection's time, with 20 % jitter. It doubles.
    eject_max_s: Seconds = 300.0  # The longest ejection.
    # Most replicas of a model that are ejected at once. One of them always stays.
    eject_share: Share = 0.5
    # With fewer usable replicas of a model than this share, ejected ones that are up are used, too.
    panic_share: Share = 0.2
    slow_start_s: SecondsOrOff = 30.0  # A replica that came up gets its full share after this time.
    # A replica is suspect if a first token takes so many times its usual time, ...
    suspect_factor: Annotated[float, msgspec.Meta(ge=1)] = 10.0
    # ... at least this time, and the replica shows no other progress meanwhile.
    suspect_min_s: Seconds = 5.0
    models_interval_s: Seconds = 30.0  # Time between two reads of /v1/models.


class Tls(Frozen, frozen=True):
    """HTTPS on the data port. Turning it on or off needs a restart."""

    cert: str  # A PEM file: the certificate chain.
    key: str  # A PEM file: the private key.


class Upstream(Frozen, frozen=True):
    """How the router connects to replicas."""

    token: str | None = None  # Sent as `Authorization: Bearer`; replaces the client's.
    token_file: str | None = None  # The same token, read from a file at start and at every reload.
    ca_file: str | None = None  # PEM certificates to trust. Unset: the system's.
    verify: bool = True  # Verify the replicas' certificates.
    server_name: str | None = None  # The name for TLS. Unset: the URL's host.


class AccessLog(Frozen, frozen=True):
    """One JSON line for each request."""

    path: str = "-"  # A file. "-": standard output. "": no log.
    flush_s: Seconds = 0.5  # Longest time until a line is written.
    queue: Bytes = 4 * MiB  # Bytes that wait for a slow disk before lines are dropped.
    # Leading pairs of prefix blocks whose hashes are logged; `hedgerow replay` needs them.
    blocks: Annotated[int, msgspec.Meta(ge=0, le=4096)] = 64
    salt: str = ""  # Salt of the hashes in the log. "": a new one at each start.


class Batches(Frozen, frozen=True):
    """OpenAI's /v1/files and /v1/batches, served by the router itself."""

    enabled: bool = False  # Turn the batch API on.
    # The folder for files and batches. No other router may use it. Its parent must exist.
    folder: str = "batches"
    file: Bytes = 512 * MiB  # Largest uploaded file.
    # Most lines of one batch.
    lines: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 50_000
    line: Bytes = 16 * MiB  # Longest line.
    result: Bytes = 16 * MiB  # Largest answer to one line.
    files: Count = 1000  # Most files of one owner, results included.
    files_total: Count = 100_000  # Most files of all owners.
    bytes: Bytes = 16 * GiB  # Size of one owner's files.
    bytes_total: Bytes = 256 * GiB  # Size of all files.
    unfinished: Count = 100  # Unfinished batches of one owner.
    unfinished_total: Count = 1000  # Unfinished batches of all owners.
    # Most lines under way at once. The router sends fewer while enough of them wait in the queue.
    concurrency: Count = 1024
    # Attempts of a line whose request fails. A busy fleet does not count as a failure.
    attempts: Count = 5
    retention_s: Seconds = 30 * 86400.0  # Files and finished batches are deleted after this time.
    # Space left free on the disk; results wait until there is more.
    disk_free: BytesOrNone = 1024 * MiB


class Drain(Frozen, frozen=True):
    """What happens between SIGTERM and the end."""

    # First, /readyz returns 503 for this time, and requests are still accepted.
    lame_duck_s: SecondsOrOff = 5.0
    grace_s: SecondsOrOff = 600.0  # Then requests under way may finish within this time.


class Emulator(Frozen, frozen=True):
    """The fleet of `--emulate N`: emulated engines in a process of their own."""

    count: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0  # Emulated engines. 0: none.
    model: str = "emulated"  # The model that the emulated engines serve.


class Config(Frozen, frozen=True):
    """The whole file."""

    listen: Annotated[str, Restart] = "0.0.0.0:8080"  # The data port: clients connect here.
    # The admin port: metrics, health, reload and drain. Keep it private.
    admin: Annotated[str, Restart] = "127.0.0.1:9901"
    replicas: tuple[Replica, ...] = ()  # The inference engines.
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
    emulate: Annotated[Emulator, Restart] = Emulator()
    allow_paths: tuple[str, ...] = ()  # Control endpoints of the engines that are forwarded.
    # Networks of proxies whose X-Forwarded-* and x-request-id headers are trusted.
    trusted_proxies: tuple[str, ...] = ()
    # A client that closes its sending side after a request still gets the answer.
    allow_half_close: bool = False
    # The router's name in `Via`. A request that already has it there is refused as a loop.
    via: str = "hedgerow"
    debug_headers: bool = False  # Add X-Router-Replica to responses.
