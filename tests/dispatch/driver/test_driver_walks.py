"""Several requests, replicas and all possible events, in any order.

The real request drivers, queue driver, hedger and fleet run on virtual time (`driven.py`). After
each step, leases, budgets and the queue match the live attempts. In the end each request has ended
once, and nothing is held for it.
"""

from hypothesis import HealthCheck, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from policies.allowed import Allowed
from policies.queueing.ticket import SENT, WAITING
from router.admission.concurrency import Concurrency
from router.config.model import (
    Classes,
    ClassSettings,
    ClassTimeouts,
    Health,
    Hedging,
    HighClass,
    ModelRoute,
    ModelTarget,
    Preemption,
    Queue,
    QueueGates,
    Reservations,
    Retry,
    Timeouts,
)
from router.core.errors import Reason
from router.core.urgency import CLASSES
from router.dispatch.driver.attempt_state import Attempt
from router.fleet.names import NamedModel
from tests.addons.needed import needs
from tests.admission.extras import used_tokens
from tests.dispatch.driven import TOKENS, Driven, World
from tests.examples import examples

pytestmark = needs("preemption", "reservations")

# Classes by name, so that a failure is easy to read.
HEDGINGS = {
    "off": Hedging(policy="off"),
    "late": Hedging(policy="fixed", options={"delay_s": 0.5}, classes=CLASSES, budget=1.0),
    "at once": Hedging(policy="fixed", options={"delay_s": 0.0}, classes=CLASSES, budget=0.5),
    "dry": Hedging(policy="fixed", options={"delay_s": 0.0}, classes=CLASSES, dry_run=True),
}
_HURRIED = HighClass(timeouts=ClassTimeouts(connect_s=0.5))
_IMPATIENT = ClassSettings(wait_s=3.0, starvation_s=1.0, absent_s=1.0)
QUEUES = {
    "gates": Queue(policy="fifo", order="strict", gates=QueueGates(waiting=1, prefill_tokens=0)),
    "preempts": Queue(preemption=Preemption(enabled=True, after_s=0.25, budget=1.0)),
    "reserves": Queue(policy="fifo", reservations=Reservations(enabled=True)),
}
CLASSES_OF = {  # classes by the name of the queue
    "": Classes(high=_HURRIED),
    "gates": Classes(high=_HURRIED),
    "preempts": Classes(high=_HURRIED),
    "reserves": Classes(high=_HURRIED, normal=_IMPATIENT),
}
RETRIES = {
    "at once": Retry(backoff_s=0.0),
    "pauses": Retry(backoff_s=0.25),
    "one": Retry(budget=0.0, budget_min=1, backoff_s=0.125),
    "none": Retry(budget=0.0, budget_min=0),
}
TIMES = {
    "endless": Timeouts(first_token_s=2.0, whole_s=3.0, token_gap_s=1.0),
    "4 s": Timeouts(first_token_s=2.0, whole_s=3.0, token_gap_s=1.0, total_s=4.0),
}
REGIONS = (("",), ("eu", "us"), ("eu", "us", "asia"))
ALLOWED = {
    "all": None,
    "eu": Allowed(["eu"]),
    "us, asia": Allowed(["us", "asia"]),
}
# Prompts with common prefixes, in blocks.
PROMPTS = ((), (1, 2, 3), (1, 2, 4), (1, 2, 5), (6,))
LIVELY = 6  # maximum number of concurrent requests
KNOWN = 6  # maximum number of replicas
OWN = ("primary", "retry", "fallback")
# The model of some requests: it has two fallbacks.
FALLS_BACK = NamedModel("m", ModelRoute(fallbacks=(ModelTarget(model="b"), ModelTarget(model="m"))))


class Walk(RuleBasedStateMachine):
    @initialize(
        replicas=st.integers(1, 4),
        queue=st.sampled_from(["", *QUEUES]),
        hedging=st.sampled_from(list(HEDGINGS)),
        retry=st.sampled_from(list(RETRIES)),
        timeouts=st.sampled_from(list(TIMES)),
        most=st.sampled_from([None, 1, 2]),
        ejects=st.booleans(),
        regions=st.sampled_from(REGIONS),
        models=st.sampled_from([("m",), ("m", "*"), ("m", "b")]),
    )
    def begins(
        self,
        replicas: int,
        queue: str,
        hedging: str,
        retry: str,
        timeouts: str,
        most: int | None,
        ejects: bool,
        regions: tuple[str, ...],
        models: tuple[str, ...],
    ) -> None:
        self.world = World(
            replicas,
            queue=QUEUES.get(queue),
            hedging=HEDGINGS[hedging],
            retry=RETRIES[retry],
            timeouts=TIMES[timeouts],
            classes=CLASSES_OF[queue],
            health=Health(eject_after=2 if ejects else 1000, eject_base_s=1.0, suspect_min_s=1.0),
            most=most,
            regions=regions,
            models=models,
        )
        self.concurrency = Concurrency(2)  # concurrency limit of the key "k"
        self.joined = replicas

    def any_attempt(self, data: st.DataObject) -> tuple[Driven, Attempt]:
        """An attempt that was sent and has not ended."""
        found = [(r, a) for r in self.world.requests for a in r.driver.state.live if a in r.opened]
        return data.draw(st.sampled_from(found), label="attempt")

    def any_replica(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.world.fleet.replicas)), label="replica")

    # -- clients ------------------------------------------------------------------------------

    @precondition(lambda self: len(self.world.requests) < LIVELY)
    @rule(
        urgency=st.sampled_from(CLASSES),
        streamed=st.booleans(),
        repeatable=st.sampled_from([True, True, False]),
        continued=st.booleans(),
        key=st.sampled_from(["", "k"]),
        pinned=st.sampled_from([False, False, False, True]),
        light=st.sampled_from([False, False, False, True]),
        allowed=st.sampled_from(list(ALLOWED)),
        region=st.sampled_from(["", "eu", "us", "elsewhere"]),
        model=st.sampled_from(["m", "m", "another name"]),
        falls_back=st.booleans(),
        blocks=st.sampled_from(PROMPTS),
        data=st.data(),
    )
    def arrives(
        self,
        urgency: str,
        streamed: bool,
        repeatable: bool,
        continued: bool,
        key: str,
        pinned: bool,
        light: bool,
        allowed: str,
        region: str,
        model: str,
        falls_back: bool,
        blocks: tuple[int, ...],
        data: st.DataObject,
    ) -> None:
        world = self.world
        is_limited = key and world.queue is not None and not light
        with_owner = pinned and world.fleet.replicas
        world.arrives(
            f"q{len(world.all)}",
            urgency,
            streamed=streamed,
            repeatable=repeatable,
            hedged=repeatable,
            continued=continued,
            key=key,
            light=light,
            concurrency=self.concurrency if is_limited else None,
            pinned=self.owner(data, ALLOWED[allowed]) if with_owner else None,
            allowed=ALLOWED[allowed],
            region=region,
            model=model,
            tokens=TOKENS * max(1, len(blocks)),
            blocks=blocks,
            named=FALLS_BACK if falls_back else None,
        )

    def owner(self, data: st.DataObject, allowed: Allowed | None) -> str | None:
        """A replica that holds a stored response. The fleet refuses a replica of another region."""
        known = self.world.fleet.replicas.values()
        found = sorted(r.id for r in known if allowed is None or allowed.allows(r.region))
        return data.draw(st.sampled_from(found), label="owner") if found else None

    asked = precondition(lambda self: bool(self.world.requests))

    @asked
    @rule(data=st.data())
    def client_leaves(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.world.requests)).leaves()

    @asked
    @rule(data=st.data())
    def body_is_not_kept(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.world.requests)).body = None

    # -- replicas -----------------------------------------------------------------------------

    sent = precondition(lambda self: any(r.opened for r in self.world.requests))

    @sent
    @rule(data=st.data())
    def accepts(self, data: st.DataObject) -> None:
        request, attempt = self.any_attempt(data)
        if not attempt.is_sent:
            request.connects(attempt)

    @sent
    @rule(data=st.data())
    def refuses(self, data: st.DataObject) -> None:
        request, attempt = self.any_attempt(data)
        if not attempt.is_sent:
            request.fails(attempt, Reason.CONNECT_FAILED)

    @sent
    @rule(data=st.data())
    def shows_content(self, data: st.DataObject) -> None:
        request, attempt = self.any_attempt(data)
        request.shows(attempt)

    @sent
    @rule(data=st.data())
    def is_whole(self, data: st.DataObject) -> None:
        request, attempt = self.any_attempt(data)
        request.whole(attempt)

    @sent
    @rule(
        reason=st.sampled_from(
            [Reason.REPLICA_RESET, Reason.EMPTY_STREAM, Reason.BAD_RESPONSE, Reason.NO_FILES]
        ),
        unread=st.booleans(),
        data=st.data(),
    )
    def breaks(self, reason: Reason, unread: bool, data: st.DataObject) -> None:
        request, attempt = self.any_attempt(data)
        request.fails(attempt, reason, unread=unread)

    @sent
    @rule(
        reason=st.sampled_from(
            [
                Reason.REPLICA_BUSY,
                Reason.REPLICA_BUSY,
                Reason.REPLICA_REFUSED,
                Reason.SERVER_ERROR,
                Reason.STREAM_ERROR,
            ]
        ),
        data=st.data(),
    )
    def answers_an_error(self, reason: Reason, data: st.DataObject) -> None:
        request, attempt = self.any_attempt(data)
        if attempt.rest is not None:
            request.fails(attempt, reason)
        elif request.driver.state.winner is None:
            request.answers(attempt, reason)

    @sent
    @rule(data=st.data())
    def knows_no_priority(self, data: st.DataObject) -> None:
        request, attempt = self.any_attempt(data)
        if (
            request.driver.state.winner is None
            and request.driver.priority_rejected_by is not attempt.at
        ):
            request.asks_without_priority(attempt)

    there = precondition(lambda self: bool(self.world.fleet.replicas))

    @there
    @rule(data=st.data())
    def refuses_all_or_takes_all(self, data: st.DataObject) -> None:
        self.world.refusing ^= {self.any_replica(data)}

    @there
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        self.world.fleet.remove(self.any_replica(data))

    @precondition(lambda self: len(self.world.fleet.replicas) < KNOWN)
    @rule(is_tried=st.booleans(), is_new=st.booleans())
    def joins(self, is_tried: bool, is_new: bool) -> None:
        """A new replica, or one with the ID of a replica that has left."""
        world = self.world
        gone = sorted({r.id for r in world.replicas} - set(world.fleet.replicas))
        if is_new or not gone:
            gone = [f"r{self.joined}"]
            self.joined += 1
        replica = world.joins(gone[0], is_tried=is_tried)
        if is_tried:
            replica.health.begins_slowly(world.time.at)

    @there
    @rule(data=st.data(), good=st.booleans())
    def is_probed(self, data: st.DataObject, good: bool) -> None:
        id = self.any_replica(data)
        if good:
            self.world.fleet.probes.probed(self.world.fleet.replicas[id], True)
        else:
            self.world.goes_down(id)

    # -- the router ---------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.time.passes(seconds)

    @rule(
        hedging=st.sampled_from(list(HEDGINGS)),
        queue=st.sampled_from(list(QUEUES)),
        retry=st.sampled_from(list(RETRIES)),
    )
    def reload(self, hedging: str, queue: str, retry: str) -> None:
        world = self.world
        world.hedger.adopt(HEDGINGS[hedging])
        world.budget.rules = RETRIES[retry]
        if world.queue is not None:
            world.adopts(queue=QUEUES[queue], classes=CLASSES_OF[queue])

    @there
    @rule(data=st.data(), region=st.sampled_from(["eu", "us", "asia"]))
    def reload_moves_a_replica(self, data: st.DataObject, region: str) -> None:
        self.world.moves(self.any_replica(data), region)

    @asked
    @rule(data=st.data(), allowed=st.sampled_from(list(ALLOWED)))
    def reload_limits_a_key(self, data: st.DataObject, allowed: str) -> None:
        data.draw(st.sampled_from(self.world.requests)).limit_regions(ALLOWED[allowed])

    @precondition(lambda self: any(r.ticket is not None for r in self.world.requests))
    @rule(data=st.data())
    def gives_way(self, data: st.DataObject) -> None:
        queue = self.world.queue
        assert queue is not None
        tickets = [r.ticket for r in self.world.requests if r.ticket is not None]
        queue.recall(data.draw(st.sampled_from(tickets)), self.world.time.at)

    # -- invariants ---------------------------------------------------------------------------

    @invariant()
    def all_is_counted(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.time.turn()
        world.check()
        assert all(r.ended is not None for r in world.all if r not in world.requests)
        self.check_times()
        self.check_regions()
        self.check_copies()
        self.check_tickets()

    def check_times(self) -> None:
        """Each attempt has its own time to its first content."""
        for request in self.world.requests:
            for attempt in request.driver.state.live:
                if attempt not in request.won:
                    assert attempt.first_due == attempt.began + request.deadlines.first_s

    def check_regions(self) -> None:
        """No request is sent to a region that it may not use at that time.

        This applies to first attempts, retries, copies and resumed streams, also after reloads.
        """
        for request in self.world.all:
            for region, allowed in request.received:
                assert allowed is None or allowed.allows(region)

    def check_copies(self) -> None:
        """The budget has paid for the running copies, and for those that reached a replica."""
        counts, bucket = self.world.counts, self.world.hedger._budget
        copies = [a for r in self.world.all for a in r.driver.state.attempts if a.kind == "hedge"]
        assert counts.fired == len(copies)
        paid = sum(a.tokens for a in copies if a.held or a.is_sent)
        assert counts.fired_tokens == paid
        assert counts.fired_tokens + counts.returned_tokens == sum(a.tokens for a in copies)
        assert bucket.level >= 0.0

    def check_tickets(self) -> None:
        """A ticket waits, or it belongs to the replica of its request's last attempt.

        A copy does not belong to the ticket before it delivers content.
        """
        for request in self.world.all:
            ticket = request.ticket
            if request.ended is not None:
                assert ticket is None
                continue
            if ticket is not None:
                waits = request.deadlines.waits_since >= 0.0
                assert ticket.state == (WAITING if waits else SENT)
                assert ticket.arrival == request.arrived
                winner = request.driver.state.winner
                if not waits and (winner is None or winner.kind != "continuation"):
                    own = [a for a in request.driver.state.attempts if a.kind in OWN]
                    assert ticket.place is (own[-1] if winner is None else winner).at
            else:
                assert request.deadlines.waits_since < 0.0, "it waits without a ticket"

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.refusing.clear()
        world.joins("last")
        for replica in [*world.fleet.replicas.values()]:
            world.fleet.probes.probed(replica, True)
        for _ in range(400):
            for request in [*world.requests]:
                for attempt in [*request.opened]:
                    if attempt in request.opened:
                        request.whole(attempt)
            if not world.requests:
                break
            world.time.passes(0.25)
            world.check()
        assert not world.requests, "a request is forgotten"
        self.all_is_counted()
        counts = world.counts
        assert counts.fired == counts.won + counts.lost + counts.failed
        if world.queue is not None:
            assert world.queue.pools.waiting == 0
            for queue in world.queue.pools.queues:
                assert [used_tokens(queue, rank) for rank in range(len(CLASSES))] == [0] * 5
        assert (self.concurrency.own, self.concurrency.batch) == (0, 0)
        world.check_empty()


Walk.TestCase.settings = examples(
    250, steps=40, suppressed=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
TestWalks = Walk.TestCase
