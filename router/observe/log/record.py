"""One line of the access log.

The struct is in a separate file that is not compiled, because msgspec implements structs in C.

Must never: hold text of a prompt or of a response, or a secret.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

# One attempt: the replica, the kind of the attempt, the reason of its end, and its milliseconds.
AttemptRecord = tuple[str, str, str, float]


class Line(msgspec.Struct, omit_defaults=True, gc=False, rename={"priority": "class"}):
    """The fields of a line that most requests have. Fields with their default value are omitted.

    Pass the fields as positional arguments: so many keyword arguments would cost more than encoding
    the line.
    """

    ts: float = 0.0  # the time of the request's arrival, in seconds since 1970
    id: str = ""
    client: str = ""  # the client's address
    method: str = ""
    path: str = ""  # the request's path, without the query, because a query may contain secrets
    kind: str = ""
    model: str | None = None
    stream: bool = False
    status: int = 0
    reason: str = ""
    replica: str = ""  # the replica whose response the client received
    attempts: list[AttemptRecord] = []
    ttft_ms: float | None = None
    duration_ms: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    # The fields below are the input of a replay. Hashes are salted. The engine reports the token
    # counts; None: it reported none.
    priority: str = ""  # the name of the priority class
    tenant: str = ""  # the hash of the key's name, or of the client's credential
    session: str = ""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    exact: bool = False  # the token counts are for a complete response
    estimated_tokens: int = 0  # the router's estimate of the prompt tokens
    # Hashes of the prompt's first blocks: six bytes for every two blocks, as base64 in the log.
    blocks: bytes = b""
    # The hash of the client address whose share of the queue the request used; "": the tenant's own
    # share (`intake/flow.py`).
    within: str = ""
    max_tokens: int | None = None  # the client's limit of output tokens
    # The total time in the router's queue; None: the request never waited in the queue.
    queue_ms: float | None = None
    # For the attempt whose response the client got: the time from sending it to its first content.
    # None: equal to `ttft_ms`, because the request did not wait and had no other attempt.
    engine_ms: float | None = None
    # The next two fields describe the replica whose response the client got, at the request's end.
    # `slots`: how many requests the replica runs at once, as reported or learned.
    slots: int | None = None
    kv_tokens: int | None = None  # the reported size of the replica's KV cache in tokens


class Record(Line, omit_defaults=True, gc=False):
    """One line of the access log: the fields of `Line`, and fields that fewer requests have.

    A `Line` costs 2,000 instructions less than a `Record`.
    """

    user: str = ""  # the hash of the user within the tenant
    known_key: bool = False  # the request's key is in the keys file
    # The request ID that engines got, without its suffix `-` and number of the attempt; "": `id`.
    sent_as: str = ""
    # For the attempt whose response the client got: the priority that was sent to the engine; "":
    # none.
    engine_priority: str = ""
    # The next fields are values that the client stated. `number`: its priority on the scale from 0
    # to 4; None: the number of the priority class.
    number: float | None = None
    # The time that the client waits for content; 0: no time was left.
    deadline_ms: float | None = None
    hedge: str = ""  # the request's header x-hedge: "on", "off", or "" if it is absent
    # The SLOs that the client stated, or else the SLOs of its key; None: the SLO of the class. A
    # client's SLO is logged as stated, before the router limits it (`dispatch/slos.py`).
    ttft_slo_ms: float | None = None
    tpot_slo_ms: float | None = None
    # The number of output tokens before their deadlines (`core/token_gain.py`). None: all tokens
    # were on time, or the request does not count because the client caused its end.
    tokens_on_time: int | None = None
    # The time to first token that was estimated at the request's arrival, and the bounds of its 90
    # % interval. None: no estimate.
    ttft_estimate_ms: float | None = None
    ttft_low_ms: float | None = None
    ttft_high_ms: float | None = None
    region: str = ""  # the region of the replica whose answer the client received
    # The region that the client prefers, or else the router's; "": equal to `region`.
    client_region: str = ""
    replica_type: str = ""  # the configured type of the replica
    # The model that was requested from replicas; "": the value of `model`.
    served_model: str = ""
    # The value of `ts` as a date and a time in UTC; None: `access_log.iso_time` is off.
    time: datetime | None = None


# The defaults of fields that are mutable, because msgspec stores a factory for them instead.
_DEFAULTS: dict[str, object] = {"attempts": []}


def timed(line: Line, time: datetime) -> Record:
    """Return a line with its time as a date."""
    fields = zip(line.__struct_fields__, msgspec.structs.astuple(line), strict=True)
    return Record(**{**dict(fields), "time": time})


def repaired(record: Line) -> dict[str, object]:
    """Return the fields of a record that cannot be encoded, without fields at their default.

    Lone surrogates, which cannot be encoded, become `?`.
    """
    return {
        name: _utf8(value)
        for name, value, default in zip(
            record.__struct_fields__,
            msgspec.structs.astuple(record),
            record.__struct_defaults__,
            strict=True,
        )
        if value != _DEFAULTS.get(name, default)
    }


def _utf8(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list | tuple):
        return [_utf8(part) for part in value]
    return value
