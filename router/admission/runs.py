"""Counts the sent requests of one queue, from their dispatch to their end or return to the queue.

These are the requests with a ticket that run at replicas. Their counts close the gates of the
replicas, and the extras (`extra.py`) follow them.

Order of the calls for one ticket: `begin`, then any number of `moved`, `failed`, `first_content`
and `shown`, then one of `settle`, `hand_over` and `end`. `begin` and `end` assert that a ticket is
counted once; the calls of the driver have no effect after the end.

Must never: choose a waiting request, send one, or change which tickets wait.
"""

from __future__ import annotations

from typing import Final

from policies.queueing.flow_identity import FlowIdentity
from policies.queueing.foreign import Failures
from policies.queueing.run import Run
from policies.queueing.ticket import ENDED, SENT, Ticket
from router.admission.counts import QueueCounts
from router.admission.due import Due
from router.admission.extra import Extras
from router.admission.gates.gate_cache import CachedGate, GateCache
from router.admission.headroom import Headroom
from router.admission.output_lengths import OutputPredictor
from router.admission.rules import Rules
from router.admission.waiting.wait_lists import WaitLists
from router.core.replica_load import ReplicaLoad
from router.core.urgency import BATCH, HIGH

# How an attempt ended. The output predictor and the AIMD limit learn from it.
DONE: Final = 0
CANCELLED: Final = 1  # The attempt was cancelled, so its output length is not used.
REFUSED: Final = 2  # The replica had no capacity, or the attempt timed out.
# The default of `queue.gates.prefill_tokens`: the tokens of one prefill batch of an engine.
PREFILL_TOKENS: Final = 8192
# The largest predicted output of one request, in tokens. A request is charged its prediction until
# it ends, so a client must not be able to choose the prediction. In `cost`, this output counts as
# much as a prompt of 131,072 tokens, which is the context length of many models.
MOST_PREDICTED: Final = 65_536


class Runs:
    """The sent requests of one queue."""

    __slots__ = (
        "_counts",
        "_due",
        "_extras",
        "_failures",
        "_gates",
        "_headroom",
        "_rules",
        "_wait_lists",
        "outputs",
        "tickets",
    )

    def __init__(
        self,
        rules: Rules,
        gates: GateCache,
        headroom: Headroom,
        extras: Extras,
        wait_lists: WaitLists,
        counts: QueueCounts,
        due: Due,
        failures: Failures,
    ) -> None:
        self._rules = rules
        self._gates = gates
        self._headroom = headroom
        self._extras = extras
        self._wait_lists = wait_lists
        self._counts = counts
        self._due = due
        self._failures = failures
        self.outputs = OutputPredictor()
        # The tickets that were sent and have not ended, in the order of dispatch. Those of another
        # queue are in the order in which they were taken over.
        self.tickets: dict[Ticket, None] = {}

    def begin(
        self, ticket: Ticket, gate: CachedGate, now: float, is_charged: bool, since: float
    ) -> None:
        """Note that a request is sent.

        `since`: the time from which on the limit of its API key did not block the request. It
        equals `now` if the request did not wait.
        """
        assert ticket not in self.tickets, "the ticket is counted already"
        ticket.state = SENT
        run = ticket.run
        if run is None:
            run = ticket.run = Run()
        run.begin(gate.place, now, is_charged, since)
        self.tickets[ticket] = None
        urgency = ticket.urgency
        if ticket.concurrency is not None:
            ticket.concurrency.take(urgency == BATCH, now)
        if urgency == BATCH:
            gate.facts.batch += 1
        elif urgency <= HIGH and (gate.facts.batch or gate.facts.foreign_load):
            self._behind_batch(ticket, run, gate, now)
        for extra in self._extras.all:
            extra.sent(ticket, gate, now)

    def _behind_batch(self, ticket: Ticket, run: Run, gate: CachedGate, now: float) -> None:
        """Note that an urgent request is sent to a replica on which batch requests may run.

        Requests of other clients may be batch requests of other routers.
        """
        if gate.facts.is_full():
            run.is_behind_batch = True
            if gate.facts.batch:
                self._counts.engine_inverted[ticket.urgency] += 1
        elif run.since < now:
            # If the request waited for a slot, it takes the only free slot of the replica. If more
            # slots are free, the request waited for another reason.
            run.is_behind_batch = gate.facts.has_one_slot()

    def end(self, ticket: Ticket, run: Run) -> None:
        """Stop counting a request at its replica, because it has ended or returns to the queue."""
        assert ticket in self.tickets, "the ticket is not counted"
        del self.tickets[ticket]
        if ticket.urgency == BATCH:
            gate = self._gates.by_place.get(run.place)
            if gate is not None:
                gate.facts.batch = max(0, gate.facts.batch - 1)
        for extra in self._extras.all:
            extra.ended(ticket)

    def moved(self, ticket: Ticket, place: ReplicaLoad, now: float) -> None:
        """Note that a retry of a sent request goes to another replica.

        The new lease is already taken.
        """
        run = ticket.run
        if ticket.state == SENT and run is not None:
            gate = self._gates.of(place)
            before = self._gates.by_place.get(run.place)
            if ticket.urgency == BATCH:
                if before is not None:
                    before.facts.batch = max(0, before.facts.batch - 1)
                    if self._rules.classes[BATCH].slots < 1.0:
                        self._due.by(now)  # It may take another one.
                gate.facts.batch += 1
            run.place = place
            run.since = now
            facts = gate.facts
            may_be_batch = facts.batch > 0 or facts.foreign_load > 0
            run.is_behind_batch = ticket.urgency <= HIGH and may_be_batch and facts.is_full()
            run.is_away = False
            for extra in self._extras.all:
                extra.moved(ticket, now)
            self._gates.look(gate)

    def failed(self, ticket: Ticket) -> None:
        """Note that an attempt of a sent request has failed and its lease is released.

        The request pauses before it is sent again (`moved`) or returns to the queue (`requeue`).
        Until then the request holds no capacity.
        """
        run = ticket.run
        assert run is not None
        run.is_away = True
        for extra in self._extras.all:
            extra.failed(ticket)

    def first_content(self, ticket: Ticket, now: float, prefill_s: float = 0.0) -> None:
        """Note the first content of the request, and learn the headroom from it (`headroom.py`).

        `prefill_s`: the seconds of its prefill, as predicted at its dispatch; 0: unknown. Prompts
        longer than one prefill batch are ignored, because their length alone can make them late.
        Requests that are not streamed are ignored, because their first content is the whole answer.
        """
        run, view = ticket.run, ticket.view
        if (
            ticket.urgency <= HIGH
            and run is not None
            and not run.has_shown
            and view.stream
            and view.prompt_tokens <= PREFILL_TOKENS
        ):
            self._headroom.answered(
                now - run.since,
                prefill_s,
                self._rules.classes[HIGH].ttft_slo_s,
                now,
                is_behind_batch=run.is_behind_batch and not self._wait_lists.urgent_waits(),
                peers=self._gates.peers.ratio,
            )
        self.shown(ticket)

    def shown(self, ticket: Ticket) -> None:
        """Note that the client has the first content of the request, or that the request cannot be
        sent a second time."""
        run = ticket.run
        if run is None:
            return
        run.has_shown = True
        for extra in self._extras.all:
            extra.shown(ticket)

    def settle(self, ticket: Ticket, tokens: int, output: int, now: float, end: int = DONE) -> None:
        """Record the end of a sent request after its lease was released. The driver calls `freed`
        next.

        `tokens`, `output`: the true numbers of its uncached prompt tokens and of its output tokens.
        A number below 0 means unknown; then the prediction is kept. Only the first call for a sent
        ticket has an effect.
        """
        run = ticket.run
        if ticket.state != SENT or run is None:
            return
        ticket.state = ENDED
        self.end(ticket, run)
        if ticket.concurrency is not None:
            ticket.concurrency.give(ticket.urgency == BATCH, now)
        view = ticket.view
        of_choice = output // view.choices  # Below 0 if `output` is.
        if end == DONE and output >= 0:
            self.outputs.learn(ticket.flow, of_choice)
        if run.is_charged:
            self._settled(ticket, tokens, output)
        self._learn(run.place, view.prompt_tokens, of_choice, run.sent_at, now, end)
        # The ticket may stay in memory for a while, and must not keep the replica in memory.
        run.place = None

    def _settled(self, ticket: Ticket, tokens: int, output: int) -> None:
        view = ticket.view
        try:
            self._rules.order.settled(
                ticket,
                tokens if tokens >= 0 else view.prompt_tokens,
                output if output >= 0 else max(view.output_tokens, 0),
            )
        except Exception as err:
            self._failures.add("settled", err)

    def hand_over(self, ticket: Ticket, to: Runs, now: float) -> None:
        """Let another queue count a sent request, because the request's replica belongs to it.

        For the order policy of this queue, the request ends with its predicted cost.
        """
        run = ticket.run
        if ticket.state != SENT or run is None:
            return
        self.end(ticket, run)
        if run.is_charged:
            self._settled(ticket, -1, -1)
            run.is_charged = False
        to.take_over(ticket, run, now)

    def take_over(self, ticket: Ticket, run: Run, now: float) -> None:
        """Count a request that another queue has sent and hands over."""
        self.tickets[ticket] = None
        gate = self._gates.by_place.get(run.place)
        if gate is not None and ticket.urgency == BATCH:
            gate.facts.batch += 1
            self._gates.look(gate)
        for extra in self._extras.all:
            extra.moved(ticket, now)

    def passed(
        self,
        place: ReplicaLoad,
        flow: FlowIdentity,
        tokens: int,
        output: int,
        sent_at: float,
        now: float,
        end: int,
    ) -> None:
        """Record the end of a request that was sent without a ticket; see `settle`. `output`: the
        output tokens of one of its choices."""
        if end == DONE and output >= 0:
            self.outputs.learn(flow, output)
        self._learn(place, tokens, output, sent_at, now, end)

    def _learn(
        self, place: ReplicaLoad, tokens: int, output: int, sent_at: float, now: float, end: int
    ) -> None:
        """Update the AIMD limit of a replica without metrics."""
        gate = self._gates.by_place.get(place)
        if gate is None or gate.learned is None:
            return
        if end == REFUSED:
            gate.learned.failed(sent_at, now)
        elif end == DONE:
            work = 1.0 + max(output, 0) + tokens / 64.0
            others = place.waiting - place.foreign_waiting
            gate.learned.answered(sent_at, now, work, others)

    def expected_output(self, flow: FlowIdentity) -> int:
        """Return the expected output tokens of one choice of the flow's next answer."""
        return self.outputs.predict(flow)

    def predict(self, ticket: Ticket) -> None:
        view = ticket.view
        if not view.decodes:
            view.output_tokens = 0
        elif view.output_tokens < 0:
            output = self.expected_output(ticket.flow)
            limit = view.output_limit
            if 0 <= limit < output:
                output = limit
            view.output_tokens = min(output * view.choices, MOST_PREDICTED)
