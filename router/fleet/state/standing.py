"""The place of one replica in the fleet: its duty, and how long it has been in its state."""

from __future__ import annotations

from router.fleet.membership import DRAINED, DRAINING, Duty


class Standing:
    """How one replica takes part in the fleet. Only the fleet's table (`table/`) writes it."""

    __slots__ = ("duty", "is_standby", "is_unlisted", "joined", "since", "state")

    def __init__(self) -> None:
        self.joined = 0.0  # When the replica joined the fleet (monotonic seconds).
        self.state = ""  # The state at the last change of the fleet; see `note`.
        self.since = 0.0  # When the replica came into that state.
        self.duty: int = Duty.IN_SERVICE  # The operator's setting for the replica.
        # True: the replica gets no new request, because replicas with a lower SRV priority number
        # are available.
        self.is_standby = False
        # True: the models of this replica are unknown, while other replicas list their models.
        self.is_unlisted = False

    def continues(self, other: Standing) -> None:
        """Copy the duty and the state of `other`. Both objects stand for the same engine."""
        self.duty = other.duty
        self.is_standby = other.is_standby
        self.state, self.since = other.state, other.since

    def unlisted(self, is_unlisted: bool) -> bool:
        """Note whether the models are unknown. Returns whether that has just begun."""
        begins = is_unlisted and not self.is_unlisted
        self.is_unlisted = is_unlisted
        return begins

    def note(self, state: str, now: float) -> None:
        """Note when the state changes. The table calls this method after each change of the fleet.

        A draining replica becomes drained without such a change, so both count as one state.
        """
        if state == DRAINED:
            state = DRAINING
        if state != self.state:
            self.state = state
            self.since = now
