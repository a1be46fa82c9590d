"""Describes faults on demand: of an engine, of a random part of its requests, or of one request.

Faults can be given in three forms with the same fields: the option
`--fault "status=503; probability=0.1"`, a JSON object posted to /emulator/faults, and the header
`x-emulate-fault` of one request. If `replica` is set, a fault applies to that emulated engine only.
So a header that a router forwards to two engines can make one attempt fail and not the other.

This module decides by random draws which requests have a fault. The server's handlers and `sse`
then cause the fault.

`Luck`: random draws that depend on the request, not on the engine that receives it.

A fault can have a probability. For a request with the header `x-emulate-key`, the draw depends on
that key and on the number of earlier attempts with it at all engines of this process. So the same
first attempts fail for every router that gets the same requests, whichever engine it chooses. A
second copy of a request gets a new draw. Without keys, the results of two benchmark runs would
differ mostly by chance.

The draws are deterministic. The number of stored keys is limited: the key that was first seen
longest ago is dropped.
"""

from __future__ import annotations

from random import Random

import msgspec

from router.core.unreadable import NOT_JSON

_KEYS = 65_536


class Luck:
    """The random draws of all engines of a process."""

    def __init__(self, most: int = _KEYS) -> None:
        self._attempts: dict[str, int] = {}
        self._most = most

    def draw(self, key: str) -> float:
        """A number from 0 to below 1, for the next attempt with this key."""
        attempts = self._attempts
        count = attempts[key] = attempts.get(key, 0) + 1
        if len(attempts) > self._most:
            del attempts[next(iter(attempts))]
        return Random(f"{key} {count}").random()


OF_PROCESS = Luck()


class FaultError(ValueError):
    """An invalid fault; the message names the field."""


class Faults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The faults of an engine, of its requests, or of one request. No fault by default."""

    # Faults of the whole engine; not allowed for one request.
    slow: float = 1.0  # factor on the duration of every step
    freeze: bool = False  # no step ever ends, but /health and response heads are still sent
    health: int = 200  # status of /health and /ping

    # Faults of generation requests. `probability` is the probability for each request.
    probability: float = 1.0
    delay_s: float = 0.0  # seconds of delay before anything else, including the response head
    # The request enters the queue late: its time to first token is this multiple of the time on an
    # idle engine. A new random draw decides for each attempt, at any engine.
    straggle: float = 1.0
    reset: bool = False  # send a TCP RST instead of an answer
    status: int = 0  # answer with this error status; 0: no error
    retry_after_s: int | None = None  # Retry-After header of the answer with `status`, in seconds
    hang: bool = False  # accept the request (a stream gets its head) and never continue
    die_after: int | None = None  # number of tokens after which the connection is closed
    # Number of tokens after which a stream gets an error event and [DONE], as in vLLM.
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
    """Parse `name=value; name=value`; a name without a value is true. Raises FaultError."""
    fields: dict[str, object] = {}
    for item in text.split(";"):
        name, has_value, value = item.partition("=")
        if name.strip():
            fields[name.strip()] = value.strip() if has_value else True
    return _checked(fields)


def from_json(raw: bytes) -> Faults:
    """Decode the faults in a JSON object. Raises FaultError if they are invalid."""
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
    """The current faults of one engine. Random draws without a key depend only on `seed`."""

    def __init__(self, replica: str, seed: int = 0, luck: Luck = OF_PROCESS) -> None:
        self.replica = replica
        self.current = NONE
        self._rng = Random(seed)
        self._luck = luck

    def set(self, faults: Faults) -> bool:
        """Replace the engine's faults. False: not replaced; `faults` are for another engine."""
        if faults.replica not in (None, self.replica):
            return False
        self.current = faults
        return True

    def roll(self, header: str | None = None, key: str | None = None) -> Faults:
        """The faults of the next request: those in its header, or else the engine's faults.

        If `key` is given, the random draw depends on it (see `Luck`). Raises FaultError for an
        invalid header.
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
