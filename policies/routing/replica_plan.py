"""Plans which replicas are kept fast enough for which priority class, from the running requests.

A stream is in time if a step of its engine takes no longer than its TPOT SLO, and a step takes
longer with a larger batch. So batches must be smaller for an urgent class than for a less urgent
class. If every replica has requests of every class, all batches are either too large for the most
urgent class or smaller than the other classes need. The plan therefore gives replicas to classes: a
replica *kept* for a class takes no request that would make its steps longer than the TPOT SLO of
that class.

The plan begins with the most urgent class. The class gets as many replicas as its running requests
need, with some spare capacity. Replicas that are already kept for the class are taken first, then
replicas on which most of its requests run. A replica that the class would use only in part is given
to it only if the replica then earns more worth per second than if it were kept for the next class.
The remaining replicas are kept for no class.

The code is pure. Must never: read a clock, or hold a replica that has left the fleet.
"""

from __future__ import annotations

from typing import Final

from policies.engine_speed import EngineSpeed
from policies.facts import Candidate, RequestView

CLASSES: Final = 5
NOBODY: Final = -1
USUAL_OUTPUT: Final = 200.0  # assumed output tokens of a request before any request has ended
# In a moving mean of tokens, a value counts as at most `MOST` times the mean plus `MORE` tokens. In
# real traffic, a few very long prompts bring most of the tokens. With a lower limit, the mean would
# be too low, and the plan would let too many requests run at a replica.
MOST: Final = 8.0
MORE: Final = 8192.0
CHANGES_MIN: Final = 16  # a new plan is made after one change per this number of replicas
MARGIN: Final = 0.95  # the share of the TPOT SLO that a step may take in the plan
STAYS: Final = 1.5  # factor in favour of the class for which a replica is already kept
SMOOTHING: Final = 0.02  # weight of one request in the means
# The computed room may be infinite, so it is limited. More requests never run at a replica.
ROOM_MOST: Final = 1e6
_NO_SLO: Final = float("inf")


class PlannedReplica:
    """The requests of this router at one replica."""

    __slots__ = (
        "by_class",
        "candidate",
        "kept",
        "others",
        "slower",
        "total",
        "was_kept",
        "was_others",
    )

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.by_class = [0, 0, 0, 0, 0]  # critical, high, normal, low, batch
        self.total = 0
        self.kept = NOBODY  # the class for which the replica is kept
        self.was_kept = NOBODY  # the value of `kept` before the last plan
        self.others = 0.0  # if the replica is kept: how many less urgent requests it takes at most
        self.was_others = 0.0  # the value of `others` before the last plan
        self.slower = 1.0  # the result of `ReplicaPlan.slower` at the last plan

    def has_changed(self) -> bool:
        """Whether the last change of the plan has changed which requests the replica takes."""
        if self.kept != self.was_kept:
            return True
        return self.kept != NOBODY and int(self.others) != int(self.was_others)

    def at_least(self, urgency: int) -> int:
        """Return the number of requests of the class and of more urgent classes."""
        return sum(self.by_class[: urgency + 1])


class ReplicaPlan:
    """The replicas of one fleet, and for which class each is kept."""

    __slots__ = (
        "_changes",
        "_spare",
        "at",
        "attention",
        "common",
        "has_room",
        "models",
        "new_tokens",
        "output",
        "prompt_tokens",
        "tpot_slo_s",
        "worth",
    )

    def __init__(self, spare: float, models: frozenset[str] | None = None) -> None:
        """`spare`: the room that is kept free for a class, as a share of its running requests.

        `models`: the models that all replicas of the plan serve; see `Candidate.models`.
        """
        self._spare = spare
        self.models = models
        self._changes = 1  # requests that were sent or have ended since the last plan
        self.at: dict[str, PlannedReplica] = {}
        self.common = EngineSpeed()
        # The classes of which one more request would be in time at some replica, as bits: 1 <<
        # class.
        self.has_room = 0
        # By class: the worth of a token of the latest request, and the usual TPOT SLO in seconds.
        # Some requests state other SLOs, which must not change the plan for the whole class.
        self.worth = [0.0] * CLASSES
        self.tpot_slo_s = [_NO_SLO] * CLASSES
        # Moving means over the last requests: the tokens of a prompt, the uncached tokens of a
        # prompt, the attention of its prefill (see `EngineSpeed`), and the output tokens.
        self.prompt_tokens = 0.0
        self.new_tokens = 0.0
        self.attention = 0.0
        self.output = USUAL_OUTPUT

    def add(
        self, candidate: Candidate, view: RequestView, prompt_tokens: float, new_tokens: float
    ) -> None:
        """Note that a request is sent to a replica. `new_tokens`: its uncached prompt tokens."""
        urgency = view.urgency
        self.prompt_tokens = _mean(self.prompt_tokens, prompt_tokens)
        self.new_tokens = _mean(self.new_tokens, new_tokens)
        attention = new_tokens * (prompt_tokens - 0.5 * new_tokens)
        self.attention = _mean(self.attention, attention, MORE * self.new_tokens)
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
        self._changes += 1

    def remove(self, candidate: Candidate, urgency: int, output: int | None) -> None:
        """Note that a request has ended after `output` tokens; None: unknown."""
        running = self.of(candidate)
        if running is None:
            return
        if output is not None:
            self.output = _mean(self.output, float(max(1, output)))
        if running.by_class[urgency]:
            running.by_class[urgency] -= 1
            running.total -= 1
            self._changes += 1

    def of(self, candidate: Candidate) -> PlannedReplica | None:
        """Return the entry of a replica; None: no request was sent to the replica under this plan.

        Another replica may have had the same ID before; its entry is not returned.
        """
        one = self.at.get(candidate.id)
        return one if one is not None and one.candidate is candidate else None

    def take(self, one: PlannedReplica, plan: ReplicaPlan) -> None:
        """Add the entry of a replica that was part of another plan, with its running requests.

        If this plan is new, it begins with what the other plan has learned from requests.
        """
        if not self.at:
            self.worth, self.tpot_slo_s = plan.worth[:], plan.tpot_slo_s[:]
            self.prompt_tokens, self.new_tokens = plan.prompt_tokens, plan.new_tokens
            self.attention, self.output = plan.attention, plan.output
        self.at[one.candidate.id] = one
        self._changes += 1

    def drop(self, replica_id: str) -> None:
        """Forget the replica with this ID."""
        self.at.pop(replica_id, None)
        self._changes += 1

    def renew(self) -> bool:
        """Make a new plan if enough requests were sent or have ended since the last plan.

        Returns whether any replica takes other requests than before the new plan.
        """
        if self._changes * CHANGES_MIN < len(self.at):
            return False
        self._changes = 0
        had_room = self.has_room
        self._give()
        changed = self.has_room != had_room
        for one in self.at.values():
            changed = changed or one.has_changed()
        return changed

    def _give(self) -> None:
        everyone = []
        for one in self.at.values():
            one.was_kept, one.kept = one.kept, NOBODY
            one.was_others = one.others
            candidate = one.candidate
            # Replicas that get no requests, and replicas of unknown speed, are not part of the
            # plan.
            if candidate.is_fit and candidate.speed.is_pace_known:
                everyone.append(one)
        self.has_room = 0
        if not everyone:
            return
        self._renew_common(everyone)
        for one in everyone:
            one.slower = self.slower(one.candidate)
        free = everyone[:]
        for urgency in range(CLASSES):
            if self.tpot_slo_s[urgency] == _NO_SLO:
                continue
            wanted = self._wanted(urgency, everyone)
            free.sort(key=lambda one: (one.was_kept != urgency, -one.by_class[urgency]))
            while wanted > 0.0 and free:
                one = free[0]
                room = self.room(one.candidate, urgency, one.slower)
                if room < 1.0 or not self._pays(urgency, min(wanted, room), room, one):
                    break
                one.others = max(0.0, min(room, ROOM_MOST) - wanted)
                wanted -= room
                one.kept = urgency
                free = free[1:]
            for one in everyone:
                is_for_it = one.kept == NOBODY or one.kept >= urgency
                if not is_for_it:
                    continue
                if one.candidate.load + 1.0 <= self.room(one.candidate, urgency, one.slower):
                    self.has_room |= 1 << urgency
                    break

    def _wanted(self, urgency: int, everyone: list[PlannedReplica]) -> float:
        """Return how many requests of the class would run if all of them were just in time, and
        spare room.

        If streams are too slow, they run for longer, so more of them run at once than are counted
        here.
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
        """Whether a replica earns more worth per second if it is kept for the class than if it is
        kept for the next class. `wanted`: how many requests of the class would use the replica."""
        for other in range(urgency + 1, CLASSES):
            slo_s = self.tpot_slo_s[other]
            if slo_s == _NO_SLO:
                continue
            worth, next_worth = self.worth[urgency], self.worth[other]
            kept = (wanted * worth + (room - wanted) * next_worth) / self.tpot_slo_s[urgency]
            # A change of the kept class delays the streams of other classes that still run at the
            # replica.
            stays = STAYS if one.was_kept == urgency else 1.0
            next_room = self.room(one.candidate, other, one.slower)
            return kept * stays >= next_room * next_worth / slo_s
        return True

    def room(self, candidate: Candidate, urgency: int, slower: float) -> float:
        """Return how many requests a replica can run at once so that streams of the class are in
        time.

        `slower`: the result of the method `slower`, which is the same for all classes.

        In the steady state each of B streams brings one prefill of P seconds in its O tokens, so a
        token takes T = step + B * (m + P / O) seconds, where m is what a stream adds to a step. P
        includes the attention, which takes a large part of the time of long prompts: without it,
        too many streams would run.
        """
        slo_s = self.tpot_slo_s[urgency]
        common = self.common
        each = self.prompt_tokens + 0.5 * self.output
        prefill_s = common.token_s * self.new_tokens + common.attention_s * self.attention
        more_s = common.sequence_s + common.context_s * each + prefill_s / self.output
        room = (
            max(0.0, MARGIN * slo_s / slower - common.step_s) / more_s if more_s > 0.0 else _NO_SLO
        )
        return min(room, float(candidate.slots)) if candidate.slots is not None else room

    def slower(self, candidate: Candidate) -> float:
        """Return the time of a step at this replica, divided by the time of the same step at the
        mean replica."""
        sequences, context = candidate.load + 1.0, float(candidate.context_tokens)
        usual_s = self.common.step_time_s(sequences, context)
        return candidate.speed.step_time_s(sequences, context) / usual_s

    def _renew_common(self, everyone: list[PlannedReplica]) -> None:
        """Update `common`, the mean coefficients of all replicas. If all batches of a replica have
        one size, its own coefficients cannot separate the fixed time of a step from the time per
        sequence."""
        known = [one.candidate.speed for one in everyone]
        common, share = self.common, 1.0 / len(known)
        common.step_s = sum([one.step_s for one in known]) * share
        common.sequence_s = sum([one.sequence_s for one in known]) * share
        common.context_s = sum([one.context_s for one in known]) * share
        common.token_s = sum([one.token_s for one in known]) * share
        common.attention_s = sum([one.attention_s for one in known]) * share


def _mean(mean: float, value: float, more: float = MORE) -> float:
    """Return the mean after one more value. Large values are limited, so that a single request
    changes the mean only a little."""
    return mean + SMOOTHING * (min(value, MOST * mean + more) - mean)
