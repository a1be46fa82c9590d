"""The interface between a queue and its extras, the addons that count every request of a queue.

An extra is an addon in `router/addons` with a function `make_extra(queue)`, which returns its
`Extra`. It is imported only if a setting needs it (`config/addons.py`). While a queue has an extra,
every request needs a ticket.

Must never: cost more than an empty loop per event if there is no extra.
"""

from __future__ import annotations

from typing import Any, Final

from mypy_extensions import mypyc_attr

from policies.queueing.ticket import Ticket
from router.admission.due import Ticked
from router.admission.gates.gate_cache import CachedGate
from router.config.addons import NEEDS
from router.config.model import Config
from router.core.addons import load
from router.core.replica_load import ReplicaLoad

EXTRAS: Final = ("reservations", "preemption")  # The names of the addons.


@mypyc_attr(allow_interpreted_subclasses=True)
class Extra:
    """What one extra does at the events of one queue. A method that is not overridden does nothing.

    The calls for one ticket: `waits` and `left` any number of times, in turns; then `sent`; then
    any number of `failed`, `moved` and `shown`; then `ended`.
    """

    def adopt(self) -> None:
        """Called when the extra is switched on, and after each reload. The tickets of the queue
        must be counted again."""

    def allows(self, ticket: Ticket) -> bool:
        """Return whether a ticket may be sent now."""
        return True

    def waits(self, ticket: Ticket, now: float) -> None:
        """Called when a ticket begins to wait, and when its API key's limit no longer blocks it."""

    def left(self, ticket: Ticket) -> None:
        """Called when a ticket no longer waits (it has its new state), or is blocked."""

    def sent(self, ticket: Ticket, gate: CachedGate, now: float) -> None:
        """Called when a request was sent to a replica."""

    def failed(self, ticket: Ticket) -> None:
        """Called when a sent request is at no replica until it is sent again."""

    def moved(self, ticket: Ticket, now: float) -> None:
        """Called when a sent request was sent to another replica, or again to the same one, or when
        another queue has handed it over."""

    def shown(self, ticket: Ticket) -> None:
        """Called when the client has the first content of a sent request, or an early 200."""

    def ended(self, ticket: Ticket) -> None:
        """Called when a sent request has ended, or returns to the queue."""

    def gone(self, place: ReplicaLoad, to: Extra | None) -> None:
        """Called when a replica has left the queue. `to`: the same extra of the queue to which the
        replica belongs now, if there is one."""

    def opens(self, now: float) -> bool:
        """Called after each change at a replica. Return whether `allows` may now be true for more
        tickets, so that all replicas must be looked at."""
        return False

    def ticks(self, now: float) -> None:
        """Called at the beginning of a tick."""

    def urges(self, ticked: Ticked, now: float) -> None:
        """Called at the end of a tick, if tickets still wait after all grants."""


class Extras:
    """The extras of one queue. All queues of a router have the same ones, in the same order."""

    __slots__ = ("_by_name", "all")

    def __init__(self) -> None:
        self.all: tuple[Extra, ...] = ()
        self._by_name: dict[str, Extra] = {}

    def adopt(self, config: Config, queue: Any) -> None:
        """Use the extras that a configuration needs. `queue`: the `QueueState`, whose rules are
        already those of `config`. Raises ConfigError as `load_extras` does."""
        before = self._by_name
        self._by_name = {
            name: before[name] if name in before else make_extra(queue)
            for name, make_extra in load_extras(config).items()
        }
        self.all = tuple(self._by_name.values())
        for extra in self.all:
            extra.adopt()

    def allow(self, ticket: Ticket) -> bool:
        """Return whether all extras allow that a ticket is sent now."""
        return all(extra.allows(ticket) for extra in self.all)


def load_extras(config: Config) -> dict[str, Any]:
    """Return the function `make_extra` of each extra that a configuration needs, by name.

    Raises ConfigError if such an addon is missing.
    """
    wanted = [name for name in EXTRAS if NEEDS[name].is_set(config)]
    return {name: load(name, NEEDS[name].setting).make_extra for name in wanted}
