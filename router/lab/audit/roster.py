"""Gives numbers to the parties of the second pass.

A party is a tenant in a class (see `parties`). The parties with the most tokens have their own
numbers; all other parties of a class share one number. Numbers are small and without gaps, so that
matrices by party are small. Must never hold more than `named` parties with their own number, and
`CLASSES_MAX` classes of other parties.
"""

from __future__ import annotations

from typing import Final

from router.lab.audit.heavy import Heavy
from router.lab.audit.parties import OTHERS, Party
from router.lab.audit.survey import PartyFigures

CLASSES_MAX: Final = 16


class Roster:
    """The numbers of parties. Created once, from the results of the first pass."""

    def __init__(self, watched: Heavy[Party, PartyFigures], named: int) -> None:
        self.parties: list[Party] = []
        self.figures: list[PartyFigures] = []
        # How often the first pass dropped a party, because it had the fewest tokens.
        self.unwatched = watched.displaced
        self._numbers: dict[Party, int] = {}
        for party, entry in watched.heaviest():
            if len(self.parties) < named:
                self._numbers[party] = self._enrol(party, entry.value)
            else:
                number = self._numbers[party] = self._other(party)
                self.figures[number].merge(entry.value)

    def number(self, party: Party) -> int:
        known = self._numbers.get(party)
        return self._other(party) if known is None else known

    def _enrol(self, party: Party, figures: PartyFigures) -> int:
        self.parties.append(party)
        self.figures.append(figures)
        return len(self.parties) - 1

    def _other(self, party: Party) -> int:
        others = Party(OTHERS, party.priority)
        number = self._numbers.get(others)
        if number is None:
            kinds = sum(party.name == OTHERS for party in self.parties)
            if kinds >= CLASSES_MAX:
                others = Party(OTHERS, "")
                number = self._numbers.get(others)
            if number is None:
                number = self._numbers[others] = self._enrol(others, PartyFigures())
        return number
