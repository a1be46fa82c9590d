"""The functions by which the fleet's table reports to the other parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from router.fleet.replica import Replica


class Hooks:
    """The hooks of one fleet. A hook that is not set does nothing, as in a simulation."""

    __slots__ = (
        "doubted_list",
        "event",
        "first_probe",
        "lost",
        "members",
        "ranks",
        "room",
        "taken",
        "unknown_model",
    )

    def __init__(
        self,
        members: Callable[[frozenset[str]], None],
        event: Callable[[str, Replica], None],
    ) -> None:
        # Called after replicas were added or removed, with the IDs of all replicas.
        self.members = members
        self.event = event  # Called with an event for the log, and its replica.
        # Called when the first probe of a replica has returned, when a replica leaves the fleet
        # before its first probe, and when all lists were read after `unknown_model`.
        self.first_probe: Callable[[], None] = _nothing
        # Called to read the model list of a replica again soon, and to read the lists of all
        # replicas; the second one returns whether they are being read.
        self.doubted_list: Callable[[Replica], None] = ignore
        self.unknown_model: Callable[[], bool] = _not_read
        # Records a replica that may have free capacity now, or `None` if fleet membership or
        # fitness changed. The queue reads these records at the end of the event loop's turn, so a
        # call decides nothing.
        self.room: Callable[[Replica | None], None] = _no_room
        # Called with a replica at which other routers have told of more requests.
        self.taken: Callable[[Replica], None] = ignore
        # Called with a replica whose process may have died, because it has lost a request.
        self.lost: Callable[[Replica], None] = ignore
        # Called after the number of data-parallel ranks of an address has changed, with its first
        # rank and the ranks that have left.
        self.ranks: Callable[[Replica, Sequence[Replica]], None] = _no_ranks


def _nothing() -> None:
    pass


def ignore(replica: Replica) -> None:
    """Do nothing, as a hook that is not set."""


def _not_read() -> bool:
    return False


def _no_room(replica: Replica | None) -> None:
    pass


def _no_ranks(replica: Replica, left: Sequence[Replica]) -> None:
    pass
