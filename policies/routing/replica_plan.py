"""Which replica keeps the pace of which class, from the requests that run there.

A stream is in time if a step of its engine takes no longer than its TPOT SLO, and a step grows with
the batch. So a batch in which an urgent class is in time is smaller than one for a less urgent
class. If every replica has requests of every class, all batches are either too large for the most
urgent class or smaller than the others need. The plan therefore gives replicas to classes: a
replica *kept* for a class takes no request that would make its steps longer than the TPOT SLO of
that class.

The most urgent class comes first. It gets as many replicas as its running requests need, with some
spare room: those first that are kept for it already, then those with most of its requests. The last
of them is given only if it makes more worth per second so than kept for the next class. Replicas
that are left are kept for nobody.

Pure. Must never: read a clock, or hold a replica that has left the fleet.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from policies.engine_speed import EngineSpeed
from policies.facts import Candidate, RequestView

CLASSES: Final = 5
NOBODY: Final = -1
USUAL_OUTPUT: Final = 200.0  # output tokens of a request until any has ended
MARGIN: Final = 0.95  # share of the TPOT SLO that a token may take
STAYS: Final = 1.5  # factor in favour of the class for which a replica is kept already
SMOOTHING: Final = 0.02  # weight of one request in the means
_NO_SLO: Final = float("inf")


class PlannedReplica:
    """The requests of this router at one replica."""

    __slots__ = ("by_class", "candidate", "kept", "others", "total", "was_kept")

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.by_class = [0, 0, 0, 0, 0]  # critical, high, normal, low, batch
        self.total = 0
        self.kept = NOBODY  # the class for which the replica is kept
        self.was_kept = NOBODY  # the same before the last change
        self.others = 0.0  # most requests of less urgent classes, if the replica is kept

    def at_least(self, urgency: int) -> int:
        """The number of requests of the class and of more urgent ones."""
        return sum(self.by_class[: urgency + 1])


class ReplicaPlan:
    """The replicas of one fleet, and for which class each is kept."""

    __slots__ = (
        "_is_old",
        "_spare",
        "at",
        "common",
        "new_tokens",
        "output",
        "prompt_tokens",
        "tpot_slo_s",
        "worth",
    )

    def __init__(self, spare: float) -> None:
        """`spare`: room that is kept beyond the running requests of a class, as a share of them."""
        self._spare = spare
        self._is_old = True
        self.at: dict[str, PlannedReplica] = {}
        self.common = EngineSpeed()
        # By class: worth of a token of the latest request, and the usual TPOT SLO in seconds. Some
        # requests state other SLOs, which must not change what the whole class gets.
        self.worth = [0.0] * CLASSES
        self.tpot_slo_s = [_NO_SLO] * CLASSES
        # Means over the last requests: tokens of a prompt, its tokens that were not cached, and
        # output tokens.
        self.prompt_tokens = 0.0
        self.new_tokens = 0.0
        self.output = USUAL_OUTPUT

    def add(
        self, candidate: Candidate, view: RequestView, prompt_tokens: float, new_tokens: float
    ) -> None:
        """A request is sent to a replica. `new_tokens`: those of its prompt that are not cached."""
        urgency = view.urgency
        self.prompt_tokens += SMOOTHING * (prompt_tokens - self.prompt_tokens)
        self.new_tokens += SMOOTHING * (new_tokens - self.new_tokens)
        running = self.at.get(candidate.id)
        if running is None or running.candidate is not candidate:
            running = self.at[candidate.id] = PlannedReplica(candidate)
        running.by_class[urgency] += 1
        running.total += 1
        self.worth[urgency] = view.worth
        usual, slo_s = self.tpot_slo_s[urgency], view.tpot_slo_s
        if usual == _NO_SLO:
            self.tpot_slo_s[urgency] = slo_s
        elif slo_s != _NO_SLO:
            self.tpot_slo_s[urgency] = usual * min(max(slo_s / usual, 0.5), 2.0) ** SMOOTHING
        self._is_old = True

    def remove(self, candidate: Candidate, urgency: int, output: int | None) -> None:
        """A request has ended, after `output` tokens; None: unknown."""
        if output is not None:
            self.output += SMOOTHING * (max(1, output) - self.output)
        running = self.at.get(candidate.id)
        if running is not None and running.by_class[urgency]:
            running.by_class[urgency] -= 1
            running.total -= 1
            self._is_old = True

    def keep(self, ids: Collection[str]) -> None:
        """Forget all replicas but these."""
        self.at = {id: running for id, running in self.at.items() if id in ids}
        self._is_old = True

    def renew(self) -> None:
        """Give the replicas to the classes again, if requests have come or gone."""
        if not self._is_old:
            return
        self._is_old = False
        everyone = list(self.at.values())
        self._renew_common(everyone)
        for one in everyone:
            one.was_kept, one.kept = one.kept, NOBODY
        free = everyone
        for urgency in range(CLASSES):
            if self.tpot_slo_s[urgency] == _NO_SLO:
                continue
            wanted = self._wanted(urgency, everyone)
            free.sort(key=lambda one: (one.was_kept != urgency, -one.by_class[urgency]))
            while wanted > 0.0 and free:
                one = free[0]
                room = self.room(one.candidate, urgency)
                if room <= 0.0 or not self._pays(urgency, min(wanted, room), room, one):
                    break
                one.others = max(0.0, room - wanted)
                wanted -= room
                one.kept = urgency
                free = free[1:]

    def _wanted(self, urgency: int, everyone: list[PlannedReplica]) -> float:
        """Requests of the class that would run if all of them were just in time, and spare room.

        Where streams are too slow, more of them run at once.
        """
        slo_s, found = self.tpot_slo_s[urgency], 0.0
        for one in everyone:
            count = one.by_class[urgency]
            if count:
                candidate = one.candidate
                tpot_s = candidate.speed.tpot_s(candidate.load, candidate.context_tokens)
                found += count * min(1.0, slo_s / tpot_s)
        return found * (1.0 + self._spare)

    def _pays(self, urgency: int, wanted: float, room: float, one: PlannedReplica) -> bool:
        """Whether a replica makes more worth per second if it is kept for the class than for the
        next one, when only `wanted` of its requests use it."""
        for other in range(urgency + 1, CLASSES):
            slo_s = self.tpot_slo_s[other]
            if slo_s == _NO_SLO:
                continue
            worth, next_worth = self.worth[urgency], self.worth[other]
            kept = (wanted * worth + (room - wanted) * next_worth) / self.tpot_slo_s[urgency]
            # A change costs the streams of other classes that still run there.
            stays = STAYS if one.was_kept == urgency else 1.0
            return kept * stays >= self.room(one.candidate, other) * next_worth / slo_s
        return True

    def room(self, candidate: Candidate, urgency: int) -> float:
        """How many requests a replica can run at once so that the class is in time there.

        In the steady state each of B streams brings one prefill of P seconds in its O tokens, so a
        token takes T = step + B * (m + P / O) seconds, where m is what a stream adds to a step.
        """
        slo_s = self.tpot_slo_s[urgency]
        common = self.common
        slower = self.slower(candidate)
        each = self.prompt_tokens + 0.5 * self.output
        prefill_s = common.token_s * self.new_tokens
        more_s = common.sequence_s + common.context_s * each + prefill_s / self.output
        room = (
            max(0.0, MARGIN * slo_s / slower - common.step_s) / more_s if more_s > 0.0 else _NO_SLO
        )
        return min(room, float(candidate.slots)) if candidate.slots is not None else room

    def slower(self, candidate: Candidate) -> float:
        """How many times as long a step of this replica takes as one of the mean replica."""
        sequences, context = candidate.load + 1.0, float(candidate.context_tokens)
        own, common = candidate.speed, self.common
        own_s = own.step_s + own.sequence_s * sequences + own.context_s * context
        usual_s = common.step_s + common.sequence_s * sequences + common.context_s * context
        return own_s / usual_s if usual_s > 0.0 else 1.0

    def _renew_common(self, everyone: list[PlannedReplica]) -> None:
        """The mean coefficients. A single replica, whose batches are all of one size, cannot tell
        what a step costs apart from its batch."""
        known = [one.candidate.speed for one in everyone if one.candidate.speed.is_known]
        if not known:
            return
        common, share = self.common, 1.0 / len(known)
        common.step_s = sum([one.step_s for one in known]) * share
        common.sequence_s = sum([one.sequence_s for one in known]) * share
        common.context_s = sum([one.context_s for one in known]) * share
        common.token_s = sum([one.token_s for one in known]) * share
