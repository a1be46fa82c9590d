"""Measures the time that parties share at replicas, and the concurrent requests of each party.

A party is a tenant in a class (see `parties`). A party is at a replica while it has at least one
request there. The cost of an arrival or departure must never exceed the number of parties at the
replica.
"""

from __future__ import annotations


class Crowd:
    """The running requests of one party, over the whole fleet."""

    __slots__ = ("now", "peak", "peak_at", "seconds")

    def __init__(self) -> None:
        self.now = 0
        self.peak = 0
        self.peak_at = 0.0
        self.seconds = 0.0  # sum of the running times of all requests of the party


class Company:
    """Processes each arrival and departure of a request once, in order of time."""

    def __init__(self) -> None:
        self.crowds: dict[int, Crowd] = {}
        self.present_s: dict[int, float] = {}  # seconds at replicas by party
        # By pair of parties, the lower number first: seconds at replicas in which both were
        # present.
        self.shared_s: dict[tuple[int, int], float] = {}
        # By replica and party: [when the party came, number of its requests].
        self._there: dict[str, dict[int, list[float]]] = {}

    def comes(self, party: int, replica: str, now: float) -> None:
        crowd = self.crowds.setdefault(party, Crowd())
        crowd.now += 1
        if crowd.now > crowd.peak:
            crowd.peak, crowd.peak_at = crowd.now, now
        there = self._there.setdefault(replica, {})
        if party in there:
            there[party][1] += 1
        else:
            there[party] = [now, 1]

    def goes(self, party: int, replica: str, now: float, stayed_s: float) -> None:
        crowd = self.crowds[party]
        crowd.now -= 1
        crowd.seconds += stayed_s
        there = self._there[replica]
        mine = there[party]
        mine[1] -= 1
        if mine[1]:
            return
        del there[party]
        since = mine[0]
        self.present_s[party] = self.present_s.get(party, 0.0) + now - since
        for other, (other_since, _) in there.items():
            pair = (party, other) if party < other else (other, party)
            both = now - max(since, other_since)
            self.shared_s[pair] = self.shared_s.get(pair, 0.0) + both
        if not there:
            del self._there[replica]

    def shared(self, party: int, other: int) -> float:
        """Return the share of the party's time at replicas in which the other party was present,
        too.
        """
        mine = self.present_s.get(party, 0.0)
        if party == other or not mine:
            return 0.0
        pair = (party, other) if party < other else (other, party)
        return self.shared_s.get(pair, 0.0) / mine
