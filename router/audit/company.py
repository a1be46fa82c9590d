"""Time that parties share at replicas, and the number of concurrent requests of each party.

A party is at a replica from the dispatch of its first request there to the end of its last request.
The cost of an arrival or departure must never exceed the number of parties at the replica.
"""

from __future__ import annotations


class Crowd:
    """Running requests of one party, over the whole fleet."""

    __slots__ = ("now", "peak", "peak_at", "seconds")

    def __init__(self) -> None:
        self.now = 0
        self.peak = 0
        self.peak_at = 0.0
        self.seconds = 0.0  # summed running time of all requests of the party


class Company:
    """Processes each arrival and departure once, in order of time."""

    def __init__(self) -> None:
        self.crowds: dict[int, Crowd] = {}
        self.present_s: dict[int, float] = {}  # party: replica-seconds with the party present
        # (party, party), the lower number first: replica-seconds with both parties present
        self.shared_s: dict[tuple[int, int], float] = {}
        # replica: party: [since, number of requests]
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
        """Share of the party's time at replicas in which the other was present, too."""
        mine = self.present_s.get(party, 0.0)
        if party == other or not mine:
            return 0.0
        pair = (party, other) if party < other else (other, party)
        return self.shared_s.get(pair, 0.0) / mine
