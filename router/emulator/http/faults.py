"""What goes wrong on demand: for a whole engine, for a share of its requests, or for one request.

One set of fields, written three ways that mean the same: the option `--fault "status=503;
probability=0.1"`, a JSON object posted to /emulator/faults, and the header `x-emulate-fault` on one
request. With `replica` set it concerns that emulated engine only, so that a header that is passed
on may fail one attempt and spare the next.

Only decides and describes; the server's handlers and `sse` do the damage.
"""

from __future__ import annotations

from random import Random

import msgspec

from router.core.unreadable import NOT_JSON
from router.emulator.core.luck import OF_PROCESS, Luck


class FaultError(ValueError):
    """A fault that is not understood; the message says which field."""


class Faults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing is wrong by default."""

    # Of the engine; not for one request.
    slow: float = 1.0  # straggler: every step takes this many times as long
    freeze: bool = False  # no step ever ends, though /health and response heads still come
    health: int = 200  # what /health and /ping answer

    # Of the requests that generate, each with this probability.
    probability: float = 1.0
    delay_s: float = 0.0  # before anything else happens, the response head included
    # Straggler by attempt: its first token takes this many times as long as on an idle engine,
    # because it reaches the queue that much later. Drawn anew for each attempt, wherever it goes.
    straggle: float = 1.0
    reset: bool = False  # RST instead of an answer
    status: int = 0  # answer this error; 0: do not
    retry_after_s: int | None = None  # Retry-After with it
    hang: bool = False  # take the request (a stream gets its head) and do nothing ever
    die_after: int | None = None  # tokens, then the connection ends in the middle
    error_after: int | None = None  # tokens, then an error event and [DONE], as vLLM does
    replica: str | None = None  # only the engine of this name

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
    """A JSON object. Raises FaultError."""
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
    """The faults of one engine at this moment. Deterministic for its seed."""

    def __init__(self, replica: str, seed: int = 0, luck: Luck = OF_PROCESS) -> None:
        self.replica = replica
        self.current = NONE
        self._rng = Random(seed)
        self._luck = luck

    def set(self, faults: Faults) -> bool:
        """Replace what holds for all requests. False: it concerns another engine."""
        if faults.replica not in (None, self.replica):
            return False
        self.current = faults
        return True

    def roll(self, header: str | None = None, key: str | None = None) -> Faults:
        """What goes wrong with the next request: its own header's faults, or everybody's.

        With a `key` its luck is its own (`luck`). Raises FaultError for a header that is not
        understood.
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
