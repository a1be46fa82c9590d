"""Adds up the waits of the second pass: by delayed party, by causing party, and by replica.

The waits of each party's slowest hundredth of requests are also added up separately. Must never
keep a single wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from router.lab.audit.blame import Wait
from router.lab.sketch import Sketch


@dataclass(slots=True)
class Parts:
    """Parts of times to first token, in seconds, summed over some requests."""

    requests: int = 0
    alone_s: float = 0.0  # the requests' own prefills, as on an idle replica
    others_s: float = 0.0  # waits for other parties' requests
    itself_s: float = 0.0  # waits for other requests of the same party
    router_s: float = 0.0  # time in the router, before dispatch to the replica that answered
    unexplained_s: float = 0.0

    def add(self, wait: Wait, others_s: float, itself_s: float) -> None:
        self.requests += 1
        self.alone_s += wait.alone
        self.others_s += others_s
        self.itself_s += itself_s
        self.router_s += wait.router
        self.unexplained_s += wait.unexplained

    @property
    def total_s(self) -> float:
        return self.alone_s + self.others_s + self.itself_s + self.router_s + self.unexplained_s

    def share(self, seconds: float) -> float:
        total = self.total_s
        return seconds / total if total > 0.0 else 0.0


class Victim:
    """The waits of one party."""

    __slots__ = ("all", "by", "tail", "tail_by", "without")

    def __init__(self) -> None:
        self.all = Parts()
        self.tail = Parts()  # the parts of requests at or above the party's p99
        self.by: dict[int, float] = {}  # seconds of wait by causing party
        self.tail_by: dict[int, float] = {}
        self.without = Sketch()  # TTFT minus the part attributed to others


class Site:
    """The waits at one replica."""

    __slots__ = ("seconds", "unexplained_s")

    def __init__(self) -> None:
        self.seconds = 0.0  # sum of the times from dispatch to first token
        self.unexplained_s = 0.0


class Tally:
    """The sums of all waits.

    `tails`: by party, the TTFT from which a request is in the party's slowest hundredth.
    """

    def __init__(self, tails: Mapping[int, float]) -> None:
        self.victims: dict[int, Victim] = {}
        self.sites: dict[str, Site] = {}
        self._tails = tails

    def add(self, wait: Wait, replica: str | None) -> None:
        """Add one wait.

        `replica`: where the request waited; None: figures of that replica are not needed.
        """
        party = wait.stay.party
        victim = self.victims.get(party)
        if victim is None:
            victim = self.victims[party] = Victim()
        itself = wait.blamed.get(party, 0.0)
        others = sum(wait.blamed.values()) - itself
        ttft = wait.stay.ttft
        victim.all.add(wait, others, itself)
        victim.without.add(ttft - others)
        _add(victim.by, wait.blamed)
        if ttft >= self._tails.get(party, 0.0):
            victim.tail.add(wait, others, itself)
            _add(victim.tail_by, wait.blamed)
        if replica is not None:
            site = self.sites.setdefault(replica, Site())
            site.seconds += ttft - wait.router
            site.unexplained_s += wait.unexplained


def _add(sums: dict[int, float], parts: Mapping[int, float]) -> None:
    for party, seconds in parts.items():
        sums[party] = sums.get(party, 0.0) + seconds
