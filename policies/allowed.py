"""The replicas to which a request may be sent: those of some regions, with a long enough context.

Every attempt of a request goes to an allowed replica: the first choice, retries, hedges,
continuations, and requests that wait in the queue. If no such replica is up, the request waits or
fails.

- The regions are a hard limit (data residency).
- The context is the number of tokens that the request needs for its prompt and its answer. An
  engine refuses a request that exceeds its maximum. If no replica of the model has a long enough
  context, this limit does not apply, so an engine answers the client.

Pure. Must never: express a preference; the preferred region is in `RequestView.region`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# No character of these is allowed in the name of a region (`config/keys.py`).
_BEGIN: Final = "\x02"
_NEXT: Final = "\x01"
_CONTEXT: Final = "\x03"
_DIGITS: Final = 16  # Maximum digits of a context length; it is below 2**53.


class Allowed:
    """A limit of the replicas. The object never changes; requests of one key may share it."""

    __slots__ = ("context", "lane", "regions")

    def __init__(self, regions: Iterable[str] | None, context: int = 0) -> None:
        """`regions`: `None` means all regions. `context`: tokens; 0: any context is long enough."""
        self.regions = None if regions is None else frozenset(regions)
        self.context = context
        # The same limit as text. It ends the names of queue lanes, and is a key of caches.
        needs = f"{_CONTEXT}{context}" if context else ""
        names = "" if self.regions is None else _NEXT + _NEXT.join(sorted(self.regions))
        self.lane = _BEGIN + names + needs

    def allows(self, region: str) -> bool:
        """Whether a request may be sent to a replica of `region`."""
        return self.regions is None or region in self.regions

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Allowed) and self.lane == other.lane

    def __hash__(self) -> int:
        return hash(self.lane)

    def __str__(self) -> str:
        """Return the regions, for error messages."""
        return "all" if self.regions is None else ", ".join(sorted(self.regions))


def with_context(allowed: Allowed | None, context: int) -> Allowed | None:
    """Return the same regions with another limit of the context, in tokens; 0: no limit.

    `None`: all replicas are allowed.
    """
    if allowed is None:
        return Allowed(None, context) if context else None
    if allowed.context == context:
        return allowed
    return None if allowed.regions is None and not context else Allowed(allowed.regions, context)


def lane_of(model: str, allowed: Allowed | None) -> str:
    """Return the name of the queue lane of a model's requests that may use these replicas.

    `allowed`: `None` means all replicas.
    """
    return model if allowed is None else model + allowed.lane


def read_lane(lane: str) -> tuple[str, Allowed | None]:
    """Return the model and the limits of a lane; the reverse of `lane_of`.

    The limits follow the last separator, so the name of a model cannot add a region.
    """
    model, found, limits = lane.rpartition(_BEGIN)
    if not found:
        return lane, None
    names, _, context = limits.partition(_CONTEXT)
    regions = names[1:].split(_NEXT) if names else None
    # Clients may invent names of models that look like lanes.
    is_number = context.isdecimal() and len(context) <= _DIGITS
    return model, Allowed(regions, int(context) if is_number else 0)
