"""Faults on demand: for a whole engine, for a share of its requests, or for one request.

One set of fields in three equivalent forms: the option `--fault "status=503; probability=0.1"`, a
JSON object posted to /emulator/faults, and the header `x-emulate-fault` on one request. With
`replica` set, a fault applies to that emulated engine only, so that a forwarded header can fail one
attempt and not the next.

Only decides and describes; the server's handlers and `sse` carry out the faults.
"""

from __future__ import annotations

from random import Random

import msgspec

from router.core.unreadable import NOT_JSON
from router.emulator.core.luck import OF_PROCESS, Luck


class FaultError(ValueError):
    """An invalid fault; the message names the field."""


class Faults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The faults of an engine, of its requests, or of one request. No fault by default."""

    # Faults of the whole engine; not allowed for one request.
    slow: float = 1.0  # straggler: factor on the time of every step
    freeze: bool = False  # no step ever ends, though /health and response heads still come
    health: int = 200  # status of /health and /ping

    # Faults of generating requests, each request with this probability.
    probability: float = 1.0
    delay_s: float = 0.0  # seconds of delay before anything else, including the response head
    # Straggler by attempt: the attempt's first token takes this many times as long as on an idle
    # engine, because it reaches the queue that much later. Drawn again for each attempt, on any
    # engine.
    straggle: float = 1.0
    reset: bool = False  # send a TCP RST instead of an answer
    status: int = 0  # answer with this error; 0: no error
    retry_after_s: int | None = None  # Retry-After of that error
    hang: bool = False  # accept the request (a stream gets its head) and never continue
    die_after: int | None = None  # number of tokens after which the connection is cut in the middle
    # number of tokens after which an error event and [DONE] follow, as in vLLM
    error_after: int | None = None
    replica: str | None = None  # the faults apply to the engine of this name only

    def __post_init__(self) -> None:
        if not self.slow > 0:
            raise ValueError("slow must be more than 0")
        if not 0 <= self.probability <= 1:
            raise ValueError("probability must be within 0 and 1")
        if not 0 <= self.delay_s < float("inf"):
            raise ValueError("delay_s must be at least 0")
        if not 1 <= self.straggle < float("inf"):
            raise ValueError("straggle must be at least 1")
        for name in ("status", "health"):
            value = getattr(self, name)
            if value != 0 and not 200 <= value <= 599:
                raise ValueError(f"{name} must be an HTTP status")


NONE = Faults()
_ENGINE_WIDE = ("slow", "freeze", "health")


def parse(text: str) -> Faults:
    """`name=value; name=value`, a bare name meaning true. Raises FaultError."""
    fields: dict[str, object] = {}
    for item in text.split(";"):
        name, has_value, value = item.partition("=")
        if name.strip():
            fields[name.strip()] = value.strip() if has_value else True
    return _checked(fields)


def from_json(raw: bytes) -> Faults:
    """The faults in a JSON object. Raises FaultError."""
    try:
        fields = msgspec.json.decode(raw)
    except NOT_JSON as err:
        raise FaultError(f"not JSON: {err}") from None
    return _checked(fields)


def _checked(fields: object) -> Faults:
    try:
        return msgspec.convert(fields, Faults, strict=False)
    except msgspec.ValidationError as err:
        raise FaultError(str(err)) from None


class FaultPlan:
    """The current faults of one engine. Deterministic for its seed."""

    def __init__(self, replica: str, seed: int = 0, luck: Luck = OF_PROCESS) -> None:
        self.replica = replica
        self.current = NONE
        self._rng = Random(seed)
        self._luck = luck

    def set(self, faults: Faults) -> bool:
        """Replace the faults of all requests. False: `faults` apply to another engine."""
        if faults.replica not in (None, self.replica):
            return False
        self.current = faults
        return True

    def roll(self, header: str | None = None, key: str | None = None) -> Faults:
        """The faults of the next request: the faults in its header, else the common faults.

        With a `key` the draws depend on the key (`luck`). Raises FaultError for an invalid header.
        """
        faults = self.current
        if header is not None:
            faults = parse(header)
            for name in _ENGINE_WIDE:
                if getattr(faults, name) != getattr(NONE, name):
                    raise FaultError(f"{name} concerns the whole engine: POST /emulator/faults")
            if faults.replica not in (None, self.replica):
                return NONE
        if faults.probability < 1:
            drawn = self._rng.random() if key is None else self._luck.draw(key)
            if drawn >= faults.probability:
                return NONE
        return faults
