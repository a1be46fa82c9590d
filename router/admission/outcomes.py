"""Handles sent requests: their first content, their end, and their return to the queue.

Must never: choose a waiting request, or send one.
"""

from __future__ import annotations

from typing import Final

from policies.queueing.flow_identity import FlowIdentity
from policies.queueing.run import Run
from policies.queueing.ticket import ENDED, INFINITY, NEW, SENT, WAITING, Ticket
from router.admission.arrivals import Arrivals
from router.admission.counts import LEFT
from router.admission.dispatches import Dispatches
from router.core.replica_load import ReplicaLoad
from router.core.urgency import BATCH, HIGH

# How an attempt ended. The output predictor and the AIMD limit learn from it.
DONE: Final = 0
CANCELLED: Final = 1  # The attempt was cancelled, so its output length is not used.
REFUSED: Final = 2  # The replica had no capacity, or the attempt timed out.
# The default of `queue.gates.prefill_tokens`: the tokens of one prefill batch of an engine.
PREFILL_TOKENS: Final = 8192


class Outcomes(Dispatches):
    """Handles the first content and the end of sent requests."""

    __slots__ = ()

    def allows_early_status(self, ticket: Ticket) -> bool:
        """Whether the client may be sent an early 200 now, before its request has been served.

        A waiting request with an early status is not evicted any more. The answer is False while a
        time limit may end the wait, or while no replica is fit, because then the right status may
        be 429, 503 or 408. Such a status can be sent only if no status was sent before.
        """
        is_limited = (
            ticket.deadline < INFINITY or self._rules.classes[ticket.urgency].wait_s < INFINITY
        )
        if ticket.state == WAITING:
            has_place = bool(self._pool.eligible(ticket.lane))
            return has_place and not is_limited and self._wait_lists.allows_early_status(ticket)
        if is_limited:
            # The request must not be preempted, because a time limit could end it while it waits
            # again.
            self.shown(ticket)
        ticket.has_early_status = True  # The flag is used if the ticket is put back into the queue.
        return True

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
            self.headroom.answered(
                now - run.since,
                prefill_s,
                self._rules.classes[HIGH].ttft_slo_s,
                now,
                is_behind_batch=run.is_behind_batch and not self._urgent_waits(),
                peers=self._gates.peers.ratio,
            )
        self.shown(ticket)

    def shown(self, ticket: Ticket) -> None:
        """Note that the client has the first content of the request, which is not preempted any
        more."""
        run = ticket.run
        if run is None:
            return
        run.has_shown = True
        if self._rules.preemption:
            self._preemption.shown(ticket)

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
        self._end(ticket, run)
        if ticket.concurrency is not None:
            ticket.concurrency.give(ticket.urgency == BATCH, now)
        view = ticket.view
        of_choice = output // view.choices  # Below 0 if `output` is.
        if end == DONE and output >= 0:
            self._outputs.learn(ticket.flow, of_choice)
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
            self._orders.failures.add("settled", err)

    def hand_over(self, ticket: Ticket, to: Outcomes, now: float) -> None:
        """Let another queue count a sent request, because the request's replica belongs to it.

        For the order policy of this queue, the request ends with its predicted cost.
        """
        run = ticket.run
        if ticket.state != SENT or run is None:
            return
        self._end(ticket, run)
        if run.is_charged:
            self._settled(ticket, -1, -1)
            run.is_charged = False
        ticket.queue = to
        to.take_over(ticket, run, now)

    def take_over(self, ticket: Ticket, run: Run, now: float) -> None:
        """Count a request that another queue has sent and hands over."""
        self._running[ticket] = None
        rules = self._rules
        if rules.preemption and not (run.has_shown or run.is_away):
            self._preemption.moved(ticket, run)
        gate = self._gates.by_place.get(run.place)
        if gate is not None and ticket.urgency == BATCH:
            gate.batch += 1
            self._gates.look(gate)
        if rules.reservations:
            self._predict(ticket)
            self._reservations.sent(ticket.urgency, ticket.reserved, now)
            if gate is not None:
                gate.used += ticket.reserved

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
            self._outputs.learn(flow, output)
        self._learn(place, tokens, output, sent_at, now, end)

    def leave(self, ticket: Ticket) -> bool:
        """Remove the ticket of a client that has disconnected, if it waits.

        Returns True if it waited. Returns False if the ticket had ended, was never queued, or was
        sent (then the driver must call `settle`).
        """
        if ticket.state == WAITING:
            self._wait_lists.drop(ticket, ENDED)
            self.counts.dropped[LEFT][ticket.urgency] += 1
            self._dirty = True
            return True
        if ticket.state == NEW:
            ticket.state = ENDED
        return False

    def requeue(self, ticket: Ticket, now: float, into: Arrivals | None = None) -> bool:
        """Put a sent request back into its old position, even if the queue is full.

        The lease of the request is released, and the driver calls `freed` next. `into`: the queue
        in which the request waits from now on, if that is another queue. Returns False if the
        ticket has already ended.
        """
        run = ticket.run
        if ticket.state != SENT or run is None:
            return False
        if run.is_preempting:
            run.preemptions += 1
            self.counts.preempted[ticket.urgency] += 1
        else:
            self.counts.queued[ticket.urgency] += 1
        self._end(ticket, run)
        if run.is_charged:
            try:
                self._rules.order.refunded(ticket)
            except Exception as err:
                self._orders.failures.add("refunded", err)
        run.end(now)
        if into is None or into is self:
            self._wait(ticket, now)
        else:
            into.receive(ticket, now)
        # The limit of the API key is released only after the ticket was queued. So the same ticket
        # may be sent again at once if it is the first waiting ticket of the key.
        if ticket.concurrency is not None:
            ticket.concurrency.give(ticket.urgency == BATCH, now)
        return True

    def unreached(self, place: ReplicaLoad, now: float) -> None:
        """Stop sending requests to a fit replica for a pause, because a connection to it failed.

        Without the pause, all waiting requests would be sent to a port that refuses connections.
        """
        gate = self._gates.of(place)
        self._gates.shut(gate, now)
        self.next_at = min(self.next_at, gate.shut_until)

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
