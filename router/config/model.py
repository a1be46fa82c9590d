"""The configuration as the program sees it: frozen, complete, every default with its unit.

Only shapes, defaults and the range of each single field live here; reading YAML and flags is
`load.py`, checking one field against another is `checks.py`. Times are seconds, sizes are bytes.
Flags and YAML set these same fields.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB

# A timer beyond 115 days is a slip of the keyboard, and far enough out it overflows the loop's.
_LONGEST_S = 1e7

Seconds = Annotated[float, msgspec.Meta(gt=0, le=_LONGEST_S)]
SecondsOrOff = Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_S)]  # 0: see the field's comment
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=1)]
CountOrNone = Annotated[int, msgspec.Meta(ge=0)]
Bytes = Annotated[int, msgspec.Meta(ge=1)]
BytesOrNone = Annotated[int, msgspec.Meta(ge=0)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Weight = Annotated[float, msgspec.Meta(gt=0, le=1e6)]


class Frozen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every section. Subclasses repeat `frozen=True` because type checkers ask for it."""


Engine = Literal["vllm", "sglang", "trtllm", "tgi", "llamacpp", "other"]


# How a replica is told a priority; sglang-low-first: with --schedule-low-priority-values-first.
EnginePriority = Literal["vllm", "sglang", "sglang-low-first", "trtllm", "none"]
ClassName = Literal["critical", "high", "normal", "low", "batch"]  # from the most urgent on
# What a number in a body means: `engine` is the dialect of the engines that serve the model.
Dialect = Literal["engine", "hedgerow", "vllm", "sglang", "sglang-low-first", "trtllm"]


class KvEvents(Frozen, frozen=True):
    """Where an engine publishes its KV cache events (ZMQ, vLLM's and SGLang's framing)."""

    endpoint: str  # tcp://host:port of the publisher
    replay: str | None = None  # tcp://host:port of the replay socket
    topic: str = ""  # "": everything


class Replica(Frozen, frozen=True):
    """One engine endpoint."""

    url: str  # http://host:port or https://host:port, with an optional path prefix
    id: str = ""  # default: host:port, and the path prefix where there is one
    # None: learned from the replica's /v1/models. "*" among them: it takes any other name, too.
    models: tuple[str, ...] | None = None
    # A name that nobody lists: refused here, or its engine judges. None: see `fleet/aliases.py`.
    unknown_models: Literal["reject", "forward"] | None = None
    weight: Weight = 1.0
    max_inflight: Count | None = None  # attempts at once; None: unlimited
    engine: Engine | None = None  # None: detected from what it answers
    kv_events: KvEvents | None = None  # None: `prefix.exact` finds out, or it has none
    priority: EnginePriority | None = None  # None: what its engine would understand
    node: str = ""  # the machine it runs on; copies of a request prefer another one ...
    zone: str = ""  # ... and another zone


class PolicyChoice(Frozen, frozen=True):
    policy: str
    options: dict[str, Any] = {}


class Routing(Frozen, frozen=True):
    policy: str = "kv_aware"
    options: dict[str, Any] = {}
    models: dict[str, PolicyChoice] = {}  # another policy for the pool of one model
    sample: Count = 64  # replicas a policy looks at besides those that hold the prefix


class Polling(Frozen, frozen=True):
    """How engines' metrics are read."""

    interval_s: SecondsOrOff = 1.0  # jittered by 20 %; 0: never
    timeout_s: Seconds = 1.0
    size: Bytes = 4 * MiB  # a longer answer is no answer
    stale_s: Seconds = 10.0  # older signals count as unknown


class Prefix(Frozen, frozen=True):
    """What the router remembers of who holds which prompt prefix."""

    enabled: bool = True
    block_bytes: Annotated[int, msgspec.Meta(ge=64, le=65536)] = 512  # of the prompt as it came
    blocks: Count = 512  # leading blocks of a prompt that are looked at
    entries: Count = 1_000_000  # (block, replica) pairs in all; about 150 bytes each
    kv_tokens: Count = 500_000  # KV cache of a replica that does not tell its size
    isolate_tenants: bool = False  # shared within one credential, else one client address, only
    exact: bool = False  # KV events and token ids; needs the extra kv-events
    tokenizers: dict[str, str] = {}  # model -> folder or file of its tokenizer, for `exact`
    tokens_wait_s: SecondsOrOff = 0.02  # how long a request may wait for its token ids


class Price(Frozen, frozen=True):
    """Of a million tokens of one model, in any currency: all models' in the same."""

    input: Amount  # prompt tokens
    cached: Amount | None = None  # ... that were in the engine's cache; None: as any other
    output: Amount = 0.0


class Usage(Frozen, frozen=True):
    inject: bool = True  # ask engines that know it for a stream's token counts
    prices: dict[str, Price] = {}  # by model; what GET /usage reckons costs by


class Limits(Frozen, frozen=True):
    """What a client or a replica may make us hold. Precedents: RFC 9112, nginx, Envoy, HAProxy."""

    request_line: Bytes = 8 * KiB  # nginx large_client_header_buffers: 8k a line -> 414
    head: Bytes = 64 * KiB  # Envoy: 60 KiB -> 431
    header_count: Count = 100  # Envoy: 100, HAProxy: 101 -> 431
    body: Bytes = 64 * MiB  # multimodal prompts; -> 413
    bodies_total: Bytes = 512 * MiB  # bodies held at once by the whole process -> 503
    response_head: Bytes = 64 * KiB
    response_header_count: Count = 200
    response_hold: Bytes = 256 * KiB  # held of one response before its first content event
    early_data: BytesOrNone = 64 * KiB  # pipelined bytes kept while a response is under way
    connections: CountOrNone = 0  # client connections at once; 0: what the open-file limit allows
    write_high: Bytes = 64 * KiB  # client write buffer at which the replica's socket is paused
    write_low: BytesOrNone = 32 * KiB
    pool_idle: CountOrNone = 64  # idle connections kept per replica
    connecting: Count = 64  # connections being opened at once per replica
    retry_body: BytesOrNone = 1 * MiB  # a larger body is not kept for another attempt


class Timeouts(Frozen, frozen=True):
    head_s: Seconds = 10.0  # a whole request head, however it drips
    body_idle_s: Seconds = 30.0  # between two pieces of a request body
    body_rate: Annotated[float, msgspec.Meta(ge=0)] = 1024.0  # bytes/s at least; 0: no floor ...
    body_rate_over_s: Seconds = 30.0  # ... over any such time
    keep_alive_s: Seconds = 75.0  # an idle client connection
    connect_s: Seconds = 2.0
    first_token_s: Seconds = 300.0  # dispatch to first content event; of streams
    whole_s: Seconds = 1800.0  # dispatch to the whole answer of what is not streamed
    token_gap_s: Seconds = 60.0  # between two pieces of a relayed response
    total_s: SecondsOrOff = 0.0  # a whole request; 0: off
    write_stall_s: Seconds = 60.0  # a client that takes nothing
    pool_idle_s: Seconds = 3.0  # at most what the servers keep (uvicorn: 5 s)
    pool_age_s: Seconds = 600.0  # a connection's life, jittered by 20 %
    commit_after_s: SecondsOrOff = 10.0  # then a stream gets 200 and comments; 0: never


class Retry(Frozen, frozen=True):
    attempts: Count = 3  # attempts of one request, the first included
    budget: Share = 0.2  # share of requests under way that may be retries (Envoy: 20 %)
    budget_min: CountOrNone = 3  # retries under way that are always allowed (Envoy: 3)
    backoff_s: SecondsOrOff = (
        0.025  # before a retry on the budget, doubled each time (Envoy: 25 ms)
    )
    backoff_max_s: SecondsOrOff = 0.25  # at most, drawn between 0 and that (Envoy: 250 ms)


class Hedging(Frozen, frozen=True):
    """When a second copy of a request races the first. Tokens are uncached prompt tokens."""

    policy: str = "adaptive"  # off, fixed, quantile, adaptive, immediate
    options: dict[str, Any] = {}
    dry_run: bool = False  # count what would have been sent and saved, send nothing
    classes: tuple[str, ...] = ("critical", "high")  # whose requests may be hedged
    by_header: bool = False  # `x-hedge: on` may ask for it, too; `off` always counts
    budget: Share = 0.05  # of all prefill tokens; cached ones are free
    utilisation: Share = 0.7  # of the pool; above it nothing is hedged
    kv_usage: Share = 0.9  # a replica whose KV cache is fuller takes no copy
    prompt_tokens: CountOrNone = 0  # a longer prompt is not hedged; 0: any length
    choices: bool = False  # also requests for several choices (`n` above 1)


class ClassTimeouts(Frozen, frozen=True):
    """What differs for one class; None: as in `timeouts`."""

    connect_s: Seconds | None = None
    first_token_s: Seconds | None = None
    whole_s: Seconds | None = None
    token_gap_s: Seconds | None = None
    total_s: SecondsOrOff | None = None


class ClassRules(Frozen, frozen=True):
    timeouts: ClassTimeouts = ClassTimeouts()


class PriorityRule(Frozen, frozen=True):
    """Requests that fit everything given here have this class."""

    priority: ClassName
    header: str = ""  # the name of a header field; "": any request
    value: str = ""  # ... and its value; "": any; `batch-*`: any that begins so
    model: str = ""  # `name`, or `name-*`
    network: str = ""  # of the client, such as 10.0.0.0/8


def _tiers() -> dict[str, ClassName]:
    return {"enterprise": "high", "pro": "normal", "free": "low"}


class Priority(Frozen, frozen=True):
    """How urgent a request is that does not say so, and how that is read that does."""

    default: ClassName = "normal"
    ceiling: ClassName = "high"  # the most urgent class, unless a key or its tier sets another
    dialect: Dialect = "engine"  # what a number in a body means
    dialects: dict[str, Dialect] = {}  # the same, for the pool of one model
    rules: tuple[PriorityRule, ...] = ()  # the first that fits
    tiers: dict[str, ClassName] = msgspec.field(default_factory=_tiers)  # of API keys
    service_tier: dict[str, ClassName] = {}  # what that field's words mean; empty: nothing
    steps: bool = True  # a user's next request is less urgent while others of his are pending


class Keys(Frozen, frozen=True):
    """Who may ask for how much. A key is what stands in Authorization: Bearer, or in x-api-key."""

    file: str | None = None  # lines made by `hedgerow key`; read again at every reload
    required: bool = False  # a request without a known key is 401
    forward: bool = False  # the client's key goes on to the replica
    user_header: str = "x-user-id"  # names the user, where the key may; else the body's `user`
    names_users: bool = False  # requests without a known key may name users, too


class Continuation(Frozen, frozen=True):
    """A stream whose replica died is finished by another one."""

    enabled: bool = False
    text: Bytes = 256 * KiB  # kept of one stream; a longer one is not continued
    text_total: Bytes = 64 * MiB  # ... of all streams
    attempts: Count = 2  # continuations of one stream


class QueueClass(Frozen, frozen=True):
    """What holds in the queue for one class. None: as for all."""

    weight: Weight = 4.0  # of its turns, where classes compete; critical goes first without one
    depth: Count = 10_000  # requests that wait at once -> 429
    timeout_s: SecondsOrOff = 0.0  # in the queue -> 503; 0: none, the client decides
    absent_s: SecondsOrOff = 10.0  # without a fit replica -> 503; 0: at once
    starvation_s: Seconds = 60.0  # in which every request is to begin, whatever else waits
    waiting: Count | None = None  # `gates.waiting` of this class
    prefill_tokens: CountOrNone | None = None  # ... `gates.prefill_tokens`
    kv_usage: Share | None = None  # ... `gates.kv_usage`
    tpot_s: SecondsOrOff | None = None  # ... `gates.tpot_s`
    idle: bool = False  # goes only where nothing runs
    share: Share = 0.4  # of the pool's tokens, where `reservations` are on


class CriticalClass(QueueClass, frozen=True):
    weight: Weight = 16.0
    depth: Count = 1000
    starvation_s: Seconds = 5.0
    waiting: Count | None = 4  # one more than others: it need not wait for them
    kv_usage: Share | None = 1.0
    share: Share = 0.1


class HighClass(QueueClass, frozen=True):
    weight: Weight = 8.0
    depth: Count = 5000
    starvation_s: Seconds = 15.0
    share: Share = 0.3


class LowClass(QueueClass, frozen=True):
    weight: Weight = 2.0
    starvation_s: Seconds = 300.0
    kv_usage: Share | None = 0.9
    share: Share = 0.15


class BatchClass(QueueClass, frozen=True):
    weight: Weight = 1.0
    depth: Count = 100_000
    absent_s: SecondsOrOff = 600.0  # a restart that loads a large model takes minutes
    starvation_s: Seconds = 1800.0
    waiting: Count | None = 1  # only where nothing waits ...
    prefill_tokens: CountOrNone | None = 0  # ... however short it is
    kv_usage: Share | None = 0.85
    share: Share = 0.05


class QueueClasses(Frozen, frozen=True):
    critical: CriticalClass = CriticalClass()
    high: HighClass = HighClass()
    normal: QueueClass = QueueClass()
    low: LowClass = LowClass()
    batch: BatchClass = BatchClass()


class QueueGates(Frozen, frozen=True):
    """When a replica takes one more: below either of the first two."""

    waiting: Count = 3  # requests without a first content event
    prefill_tokens: CountOrNone = 8192  # uncached prompt tokens: one batch; 0: only `waiting`
    kv_usage: Share = 0.95  # of a replica that takes no more
    tpot_s: SecondsOrOff = 0.0  # seconds per output token of running streams, such as 0.15; 0: off


class QueueLimits(Frozen, frozen=True):
    """Beyond them -> 429, to the largest flow or the newcomer. How many of a class: `classes`."""

    flow: Count = 10_000  # requests of one flow that wait: a key or its user, or a client address
    bytes: Bytes = 256 * MiB  # of the bodies of all that wait


class Reservations(Frozen, frozen=True):
    """Shares of a pool's tokens, kept for a class while it wants them."""

    enabled: bool = False
    strict: bool = False  # nobody borrows what is idle


class Preemption(Frozen, frozen=True):
    """Less urgent requests that have shown nothing give way to high and critical ones."""

    enabled: bool = False
    after_s: SecondsOrOff = 0.2  # of waiting
    gap: Annotated[int, msgspec.Meta(ge=1, le=4)] = 2  # classes between the two
    budget: Share = 0.05  # preemptions for each dispatch, at most
    times: Count = 2  # one request gives way
    whole_s: SecondsOrOff = 5.0  # after its dispatch: one that is not streamed


class Queue(Frozen, frozen=True):
    """Who goes next, when every replica has enough to do."""

    enabled: bool = True
    policy: str = "fair"  # fifo, strict, aging, round_robin, drr, dlpm, shortest, edf, slide
    options: dict[str, Any] = {}
    # weighted: critical first, then turns by weight; strict: the most urgent class first;
    # together: the policy compares all; policy: as the policy wants it.
    order: Literal["policy", "weighted", "strict", "together"] = "policy"
    aging: Annotated[float, msgspec.Meta(ge=0, le=1000)] = 1 / 300  # levels/s, at most to high
    affinity: CountOrNone = 64  # that a free replica looks at; 0: it takes the first
    skips: CountOrNone = 16  # times the first is passed over for its prefix
    sdk_timeouts: bool = True  # what SDKs say unasked is a deadline, too, of what is not streamed
    classes: QueueClasses = QueueClasses()
    gates: QueueGates = QueueGates()
    limits: QueueLimits = QueueLimits()
    reservations: Reservations = Reservations()
    preemption: Preemption = Preemption()


class Aborts(Frozen, frozen=True):
    """Engines that go on when a connection closes (SGLang) are told to stop."""

    enabled: bool = True  # gives such engines' requests a name (`rid`), if the client did not
    timeout_s: Seconds = 1.0


class Health(Frozen, frozen=True):
    interval_s: Seconds = 5.0  # active probe, jittered by 20 %
    timeout_s: Seconds = 5.0
    rise: Count = 1  # probes in a row that bring a replica up
    fall: Count = 3  # probes in a row that take it down
    path: str | None = None  # None: /health, then /v1/models
    eject_after: Count = 5  # failures in a row that eject a replica (Envoy: 5)
    eject_base_s: Seconds = 10.0  # doubled each time, jittered by 20 %
    eject_max_s: Seconds = 300.0
    eject_share: Share = 0.5  # of a model's replicas at most; one of them always stays
    # Fewer fit replicas of a model than this share: each of its replicas that is up is asked.
    panic_share: Share = 0.2
    slow_start_s: SecondsOrOff = 30.0  # a replica that came up gets its full share after this time
    suspect_factor: Annotated[float, msgspec.Meta(ge=1)] = 10.0  # first token overdue: x its usual
    # ... and never before this; only while the replica shows no work for so long
    suspect_min_s: Seconds = 5.0
    models_interval_s: Seconds = 30.0  # how often /v1/models is read again


class Tls(Frozen, frozen=True):
    cert: str  # PEM chain
    key: str  # PEM key


class Upstream(Frozen, frozen=True):
    """How replicas are spoken to."""

    token: str | None = None  # replaces the client's Authorization: "Bearer <token>"
    token_file: str | None = None  # the same, read from a file at start and at every reload
    ca_file: str | None = None
    verify: bool = True
    server_name: str | None = None  # TLS SNI, where it is not the URL's host


class AccessLog(Frozen, frozen=True):
    path: str = "-"  # "-": standard output; "": off
    flush_s: Seconds = 0.5
    queue: Bytes = 4 * MiB  # bytes waiting for a slow sink before lines are dropped
    blocks: Annotated[int, msgspec.Meta(ge=0, le=4096)] = (
        64  # leading blocks of a prompt told, each of two of ours
    )
    salt: str = ""  # of the hashes in it; "": drawn at the start


class Batches(Frozen, frozen=True):
    """OpenAI's /v1/files and /v1/batches, answered by the router itself."""

    enabled: bool = False
    folder: str = "batches"  # of one router alone; its parent must exist
    file: Bytes = 512 * MiB  # of one uploaded file (OpenAI: 512 MB)
    lines: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 50_000  # of one batch (OpenAI's)
    line: Bytes = 16 * MiB  # of one line
    result: Bytes = 16 * MiB  # of one line's answer
    files: Count = 1000  # of one owner, results among them
    files_total: Count = 100_000  # ... of all
    bytes: Bytes = 16 * GiB  # of one owner's files
    bytes_total: Bytes = 256 * GiB  # ... of all
    unfinished: Count = 100  # batches of one owner at once
    unfinished_total: Count = 1000  # ... of all
    concurrency: Count = 1024  # lines under way at most; fewer while enough of them wait
    attempts: Count = 5  # of a line whose request fails; a full fleet is waited for
    retention_s: Seconds = 30 * 86400.0  # of files and of batches that are over
    disk_free: BytesOrNone = 1024 * MiB  # left free on the disk; results wait for it


class Drain(Frozen, frozen=True):
    lame_duck_s: SecondsOrOff = 5.0  # readyz says 503, the port still accepts
    grace_s: SecondsOrOff = 600.0  # streams may finish


class Emulator(Frozen, frozen=True):
    """The fleet of `--emulate N`: engines in miniature, in a process of their own."""

    count: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    model: str = "emulated"


class Config(Frozen, frozen=True):
    listen: str = "0.0.0.0:8080"
    admin: str = "127.0.0.1:9901"
    replicas: tuple[Replica, ...] = ()
    routing: Routing = Routing()
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    retry: Retry = Retry()
    hedging: Hedging = Hedging()
    classes: dict[str, ClassRules] = {}  # what differs by class of urgency
    queue: Queue = Queue()
    priority: Priority = Priority()
    keys: Keys = Keys()
    continuation: Continuation = Continuation()
    aborts: Aborts = Aborts()
    health: Health = Health()
    polling: Polling = Polling()
    prefix: Prefix = Prefix()
    usage: Usage = Usage()
    upstream: Upstream = Upstream()
    tls: Tls | None = None
    access_log: AccessLog = AccessLog()
    batches: Batches = Batches()
    drain: Drain = Drain()
    emulate: Emulator = Emulator()
    allow_paths: tuple[str, ...] = ()  # control endpoints that are forwarded all the same
    trusted_proxies: tuple[str, ...] = ()  # networks whose X-Forwarded-* and x-request-id count
    allow_half_close: bool = False  # a FIN after the whole request is not a leaving
    via: str = "hedgerow"  # our name in Via; our own name coming back is a loop
    debug_headers: bool = False  # X-Router-Replica on responses
