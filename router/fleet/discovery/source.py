"""The interface between the watcher and a source of replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from router.fleet.discovery.roster import Found

_NAMED_MAX: Final = 3  # Maximum number of problems in one text.


class Look(NamedTuple):
    """The result of one look at a source."""

    wait_s: float  # Seconds until the next look.
    # The replicas that the source names now, which may be none; `None`: nothing has changed, or
    # nothing is known.
    found: Sequence[Found] | None = None
    # False: a part of the source has never answered. Then no replica is removed.
    is_complete: bool = True
    problem: str = ""  # What failed; "": nothing. A part of a source may fail.


class Source:
    """A source of replicas. Only one task uses a source."""

    def __init__(self, name: str) -> None:
        self.name = name  # The name in logs and metrics, such as `dns:vllm.svc:8000`.

    async def look(self) -> Look:
        """Ask the source. Must not block the event loop, and must end within a bounded time."""
        raise NotImplementedError

    async def close(self) -> None:
        """Release what the source holds. Called once, after the last look."""


def summary(problems: Sequence[str]) -> str:
    """Return one text with the first problems; "" if there are none."""
    more = len(problems) - _NAMED_MAX
    return "; ".join([*problems[:_NAMED_MAX], *([f"and {more} more"] if more > 0 else [])])
