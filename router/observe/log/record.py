"""One line of the access log.

This is a separate file, because the struct is implemented in C, while the modules that write it are
compiled.

Must never: hold text of a prompt or of an answer, or a secret.
"""

from __future__ import annotations

import msgspec

AttemptRecord = tuple[str, str, str, float]  # replica, kind, reason, milliseconds


class Record(msgspec.Struct, omit_defaults=True, gc=False, rename={"priority": "class"}):
    """One line. Fields with their default value are left out.

    `write` encodes at once, so a record may be reused. Build it with positional arguments: this
    many keyword arguments cost more than encoding the line.
    """

    ts: float = 0.0  # arrival, seconds since 1970
    id: str = ""
    client: str = ""  # the client's address
    method: str = ""
    path: str = ""  # request path without the query, which may hold secrets
    kind: str = ""
    model: str | None = None
    stream: bool = False
    status: int = 0
    reason: str = ""
    replica: str = ""  # the replica whose answer the client received
    attempts: list[AttemptRecord] = []
    ttft_ms: float | None = None
    duration_ms: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    # From here on: input of a replay. Hashes are salted. Counts come from the engine; None if it
    # reported none.
    priority: str = ""  # the name of the priority class
    tenant: str = ""  # hash of the key's name, or of the client's credential
    session: str = ""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    exact: bool = False  # the token counts are those of a complete answer
    estimated_tokens: int = 0  # prompt tokens as estimated by the router
    blocks: bytes = b""  # six bytes for every two leading blocks of the prompt, as base64
    # Total time in the router's queue; None: the request never waited there.
    queue_ms: float | None = None
    # The other parts of the request's flow (`intake/flow.py`).
    within: str = ""  # the client address whose share of the queue it used; "": its own share
    user: str = ""  # hash of the user within the tenant
    known_key: bool = False  # the request's key is in the keys file
    sent_as: str = ""  # ID at engines, followed by `-` and the attempt; "": `id` itself
    # Two values of the attempt whose answer the client got. The first is the time from its dispatch
    # to its first content; None: equal to `ttft_ms`, as there was no wait and no other attempt.
    engine_ms: float | None = None
    engine_priority: str = ""  # the priority number that was sent to the engine; "": none
    # Values that the client stated.
    number: float | None = None  # the stated urgency, 0 to 4; None: the class's own number
    deadline_ms: float | None = None  # time that the client waits for content; 0: no time was left
    max_tokens: int | None = None  # the client's limit of output tokens
    hedge: str = ""  # the request's header for a second copy: "on", "off", or "" for none
    # What the router knew of the replica whose answer the client got, when the request ended.
    slots: int | None = None  # requests that the replica runs at once, reported or learned
    kv_tokens: int | None = None  # tokens that fit into the replica's KV cache, as reported by it
    # The SLOs that the client states, else those of its key; None: the SLO of the class. A client's
    # SLO is logged as stated, before it is limited (`dispatch/slos.py`).
    ttft_slo_ms: float | None = None
    tpot_slo_ms: float | None = None
    # Output tokens that came before their deadlines (`core/token_gain.py`). None: all of them, or
    # the request does not count, because it ended through the client's own fault.
    tokens_on_time: int | None = None
    # The time to first token as estimated at the arrival, and its 90 % interval. None: no estimate.
    ttft_estimate_ms: float | None = None
    ttft_low_ms: float | None = None
    ttft_high_ms: float | None = None


# A mutable default is stored in __struct_defaults__ as a factory.
_DEFAULTS: dict[str, object] = {"attempts": []}


def repaired(record: Record) -> dict[str, object]:
    """The fields of a record that does not encode, without defaults: lone surrogates become `?`."""
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
