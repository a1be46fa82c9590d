"""A router without sockets: the real drivers, hedger, queue and fleet on virtual time.

`World` holds them and plays the engines and the clients. `Driven` is a request that sends nothing:
each call of its driver is recorded in `World.said` as one short sentence. Some calls are not
recorded because they have no effect on an engine or a client (`attach`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, cast

import msgspec

from policies.allowed import Allowed
from policies.contract import Context as PolicyContext, Pick, RequestView, RoutingPolicy
from policies.facts import C
from policies.queueing.flow_identity import FlowIdentity
from router.admission.concurrency import Concurrency
from router.config.model import (
    Classes,
    Config,
    Health,
    Hedging,
    Prefix,
    Queue,
    Replica as ReplicaConfig,
    Retry,
    Timeouts,
)
from router.core.errors import Reason, RouterError
from router.core.scheduling import Alarm, Scheduler
from router.core.urgency import NUMBERS, Urgency
from router.dispatch.chooser import Chooser, Policies
from router.dispatch.context import Context
from router.dispatch.driver.attempt_state import Attempt, Commit, Phase
from router.dispatch.driver.deadlines import Deadlines
from router.dispatch.driver.placing import answer, place
from router.dispatch.driver.reports import content_shown
from router.dispatch.driver.request import Request
from router.dispatch.driver.request_driver import RequestDriver
from router.dispatch.driver.request_end import end_request
from router.dispatch.driver.retries import (
    ask_without_priority,
    doubts,
    failed,
    keep_error,
    replace,
)
from router.dispatch.driver.watch import check
from router.dispatch.hedging.hedger import Hedger
from router.dispatch.resumption import Rest
from router.fleet.names import NamedModel
from router.fleet.prefix.lookup import PrefixLookup
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet
from router.intake.routes import JSON, Route
from router.observe.hedge_counts import HedgeCounts
from router.observe.metrics import Metrics
from router.wire.sweep import NEVER

LOOK_S = 0.125  # seconds between two checks of a party whose deadline has not moved
TOKENS = 128  # tokens of a prompt
BODY = 512  # bytes of a request


class Ring(Alarm):
    """An alarm on virtual time."""

    def __init__(self, time: Time, act: Callable[[], None]) -> None:
        self._time = time
        self.act = act
        self.due = NEVER

    def set(self, when: float) -> None:
        self.due = max(when, self._time.at)
        self._time.rings.pop(self, None)  # the alarm rings after alarms that were set earlier
        self._time.rings[self] = None

    def clear(self) -> None:
        self.due = NEVER
        self._time.rings.pop(self, None)


class Time(Scheduler):
    """Virtual seconds. Also replaces the fleet's sweeper: calls parties at their `deadline`."""

    def __init__(self, at: float) -> None:
        self.at = at
        self.rings: dict[Ring, None] = {}
        self._soon: list[Callable[[], None]] = []
        self._looks: dict[Any, Ring] = {}

    def now(self) -> float:
        return self.at

    def soon(self, act: Callable[[], None]) -> None:
        self._soon.append(act)

    def alarm(self, act: Callable[[], None]) -> Ring:
        return Ring(self, act)

    def add(self, party: Any) -> None:
        if party not in self._looks:
            self._looks[party] = self.alarm(lambda: self._look(party))
        self._looks[party].set(party.deadline)

    def discard(self, party: Any) -> None:
        if party in self._looks:
            self._looks.pop(party).clear()

    def _look(self, party: Any) -> None:
        if party.deadline <= self.at:
            party.on_deadline(self.at)
        if party in self._looks and party.deadline < NEVER:
            self._looks[party].set(max(party.deadline, self.at + LOOK_S))

    def turn(self) -> None:
        """Run what was scheduled for the end of this turn."""
        while self._soon:
            self._soon.pop(0)()

    def passes(self, seconds: float) -> None:
        until = self.at + seconds
        self.turn()
        while self.rings:
            ring = min(self.rings, key=lambda r: r.due)
            if ring.due > until:
                break
            self.at = max(self.at, ring.due)
            ring.clear()
            ring.act()
            self.turn()
        self.at = until


class InOrder(RoutingPolicy):
    """Picks the candidate with the alphabetically first ID. Counts the attempts reported to it."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()  # attempts by replica ID
        self.finished: Counter[str] = Counter()
        self.picked_at = 0.0  # the time of the last choice, as the policy was told

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: PolicyContext) -> Pick[C]:
        self.picked_at = ctx.now
        return Pick(min(candidates, key=lambda one: one.id), "order")

    def on_dispatch(self, view: RequestView, replica: C, ctx: PolicyContext) -> None:
        self.begun[replica.id] += 1

    def on_finish(
        self, view: RequestView, replica: C, output_tokens: int | None, ctx: PolicyContext
    ) -> None:
        self.finished[replica.id] += 1


class RingDeadlines(Deadlines):
    """The time limits of a request, checked by an alarm. The waits in the queue are recorded."""

    def __init__(self, request: Driven, route: Route, streamed: bool) -> None:
        rules, now = request.world.context.rules, request.world.time.at
        times = rules.times_of(request.stated)
        self.request = request
        self.ring = request.world.time.alarm(self._look)
        super().__init__(times, route, now, streams=streamed, most=rules.attempts)

    def update(self) -> None:
        super().update()
        if self.next_check < self.ring.due:
            self.ring.set(self.next_check)

    def _look(self) -> None:
        check(self.request.driver, self.request.world.time.at)

    def queued(self, now: float) -> None:
        super().queued(now)
        self.request.note(f"queue {self.request.name}")

    def granted(self, now: float) -> None:
        super().granted(now)
        self.request.note(f"grant {self.request.name}")


class Driven(Request):
    """A request whose attempts send nothing. It fails a test that breaks the rules of the port."""

    def __init__(
        self,
        world: World,
        name: str,
        urgency: str = "normal",
        *,
        streamed: bool = True,
        repeatable: bool = True,
        hedged: bool = True,
        continued: bool = False,
        tokens: int = TOKENS,
        blocks: tuple[int, ...] = (),
        key: str = "",
        light: bool = False,
        concurrency: Concurrency | None = None,
        pinned: str | None = None,
        model: str | None = "m",
        allowed: Allowed | None = None,
        region: str = "",
        named: NamedModel | None = None,
        output_limit: int = -1,
    ) -> None:
        number = float(NUMBERS[urgency])
        view = RequestView("chat", "m", streamed, BODY, prompt_tokens=tokens)
        route = Route("chat", True, JSON, repeatable, light)
        now, rank, id = world.time.at, Urgency(number, "test"), name.encode()
        self.name, self.world, self.stated = name, world, rank.stated
        self.ring = RingDeadlines(self, route, streamed)
        flow = FlowIdentity(key)
        context = world.context
        super().__init__(
            context.fleet, context.rules, view, rank, now, route, id, flow, [b""], self.ring
        )
        self.context = context
        self.driver = RequestDriver(self, world.context)
        view.blocks, view.output_limit = blocks, output_limit
        view.model = world.fleet.models.routed(model)
        view.allowed, view.region = allowed, region
        self.concurrency = concurrency
        self.pinned = None if pinned is None else world.fleet.replicas[pinned]
        self.named = named
        self.hedges_as = urgency if hedged else ""
        self.continued = continued
        self.attached: set[Attempt] = set()  # attempts that hold a lease
        self.opened: set[Attempt] = set()  # the attached attempts that were sent
        # For each connection, the region of the replica, and the allowed regions at that time.
        self.received: list[tuple[str, Allowed | None]] = []
        self.ended: Reason | None = None
        self.won: set[Attempt] = set()  # attempts that have answered
        self.said: dict[Attempt, Reason] = {}  # errors that are kept for later
        self.shown_at = world.time.at
        self.ring.update()

    def __repr__(self) -> str:
        return self.name

    def note(self, what: str) -> None:
        assert self.ended is None, f"{what}, after the end"
        self.world.said.append(what)

    def _gives_back(self, what: str, attempt: Attempt) -> None:
        self.note(f"{what} {self.name} at {attempt.replica_id}")
        self.attached.remove(attempt)
        self.opened.discard(attempt)

    # -- the port ---------------------------------------------------------------------------------

    def attach(self, attempt: Attempt) -> None:
        assert attempt.held
        self.attached.add(attempt)
        self._breaks("attach", attempt)

    @property
    def running(self) -> list[Attempt]:
        """All attempts that hold a lease."""
        return self.driver.state.live

    def open(self, attempt: Attempt, fresh: bool) -> None:
        assert attempt in self.running
        assert attempt in self.attached and attempt not in self.opened
        how = {"primary": "send", "hedge": "copy", "continuation": "continue"}
        verb = how.get(attempt.kind, attempt.kind)
        suffix = " on a new connection" if fresh and attempt.rest is None else ""
        self.note(f"{verb} {self.name} to {attempt.replica_id}{suffix}")
        self.opened.add(attempt)
        self._breaks("open", attempt)
        if attempt.replica_id in self.world.refusing:
            self.fails(attempt, Reason.CONNECT_FAILED)

    def drop(self, attempt: Attempt) -> None:
        self._gives_back("drop", attempt)

    def discard(self, attempt: Attempt) -> None:
        self._gives_back("discard", attempt)

    def free_connection(self, attempt: Attempt) -> None:
        self._gives_back("release", attempt)

    def see_work_of(self, pool: Sequence[Replica]) -> None:
        if self.world.broken == "see_work_of":
            raise RuntimeError(self.world.broken)

    def _breaks(self, call: str, attempt: Attempt) -> None:
        if self.world.broken == call and attempt.kind == "hedge":
            raise RuntimeError(call)

    def last_content_at(self) -> float:
        return self.shown_at

    def fail(self, err: RouterError) -> None:
        self._ends(f"answer {self.name}: {err.reason}", err.reason)

    def send_kept_error(self) -> None:
        attempt = self.driver.state.kept_error
        assert attempt is not None
        reason = self.said[attempt]
        self.driver.state.kept_error_wins()
        self._ends(f"tell {self.name}: {reason} of {attempt.replica_id}", reason)

    def truncate(self, reason: Reason) -> None:
        self._ends(f"truncate {self.name}: {reason}", reason)

    def rest(self, attempt: Attempt, reason: Reason) -> Rest | None:
        is_resumed = self.continued and self.view.stream
        return self.world.resumes(self, attempt, reason) if is_resumed else None

    def crashed(self, err: Exception) -> None:
        raise err

    def limit_regions(self, allowed: Allowed | None) -> bool:
        is_changed = super().limit_regions(allowed)
        if is_changed and self.world.queue is not None:
            self.world.queue.limits_changed(self)
        return is_changed

    def answer(self, err: RouterError) -> None:
        answer(self.driver, err)

    # -- events of its engines --------------------------------------------------------------------

    def connects(self, attempt: Attempt) -> bool:
        """The attempt gets its connection. Returns False if the request must not be sent over it.

        The attempt has then ended.
        """
        driver = self.driver
        if not driver.may_use(attempt.at):
            self.attached.remove(attempt)
            self.opened.remove(attempt)
        barred = driver.barred(attempt)
        if barred is not None:
            failed(driver, attempt, barred)
            return False
        driver.connected(attempt)
        self.received.append((attempt.at.region, self.view.allowed))
        return True

    def _is_connected(self, attempt: Attempt) -> bool:
        return attempt.is_sent or self.connects(attempt)

    def shows(self, attempt: Attempt) -> None:
        """A piece of content arrives: the first or a later piece."""
        if not self._is_connected(attempt):
            return
        now = self.world.time.at
        if self.driver.state.winner is attempt:
            self.shown_at = now
            return
        before = self.work.replica
        assert self.driver.won(attempt, now), "a loser is still heard"
        self.won.add(attempt)
        if before is not None:  # it continues where another attempt broke off
            self.world.chooser.finished(self.view, before, None, now)
        self.shown_at = now
        self.note(f"show {self.name} from {attempt.replica_id}")
        ttft_s = now - attempt.began if self.view.stream else None
        content_shown(self, self.context, attempt, ttft_s, now)

    def whole(self, attempt: Attempt) -> None:
        if not self._is_connected(attempt):
            return
        if self.driver.state.winner is not attempt:
            self.shows(attempt)
        self._completes(attempt, Reason.OK)

    def answers(self, attempt: Attempt, reason: Reason) -> None:
        """The engine answers with an error, before any content."""
        driver = self.driver
        if not self._is_connected(attempt):
            return
        if reason is Reason.REPLICA_BUSY:
            self.context.fleet.outcomes.busy(attempt.at, None, self.world.time.at)
        may_be_other = reason in (Reason.REPLICA_BUSY, Reason.STREAM_ERROR)
        may_be_other = may_be_other and not driver.state.is_contested(attempt)
        if may_be_other and replace(driver, attempt, reason):
            return
        if driver.state.holds_errors():
            self._keeps(attempt, reason)
            return
        now = self.world.time.at
        assert driver.won(attempt, now)
        self.won.add(attempt)
        driver.refused(attempt, reason, now)
        self._ends(f"end {self.name}: {reason}", reason)

    def _keeps(self, attempt: Attempt, reason: Reason) -> None:
        self.attached.remove(attempt)
        self.opened.remove(attempt)
        self.said[attempt] = reason
        self.note(f"put {self.name} aside: {reason} of {attempt.replica_id}")
        keep_error(self.driver, attempt, reason)

    def errs(self, attempt: Attempt, status: int) -> None:
        """The engine answers with an error, which may be compared with another replica's answer."""
        if not self._is_connected(attempt):
            return
        reason = Reason.SERVER_ERROR if status >= 500 else Reason.REPLICA_REFUSED
        if doubts(self.driver, attempt, status):
            self._keeps(attempt, reason)
        else:
            self.answers(attempt, reason)

    def asks_without_priority(self, attempt: Attempt) -> None:
        """The engine refuses the request because of its priority."""
        if not self._is_connected(attempt):
            return
        if not ask_without_priority(self.driver, attempt):
            self.answers(attempt, Reason.REPLICA_REFUSED)

    def fails(self, attempt: Attempt, reason: Reason, *, unread: bool = False) -> None:
        self.attached.remove(attempt)
        self.opened.remove(attempt)
        failed(self.driver, attempt, reason, unread=unread)

    def _completes(self, attempt: Attempt, reason: Reason) -> None:
        self.driver.completed(attempt, reason, self.world.time.at)
        self._ends(f"end {self.name}: {reason}", reason)

    # -- events of its client and its timers ------------------------------------------------------

    def leaves(self) -> None:
        self.driver.cancel(Reason.CLIENT_GONE)
        self._ends(f"end {self.name}: client_gone", Reason.CLIENT_GONE)

    def _ends(self, what: str, reason: Reason) -> None:
        self.note(what)
        world, now = self.world, self.world.time.at
        assert self.driver.state.live == []
        assert self.attached == set(self.running), "an engine works for no client"
        end_request(self.driver, reason, 0, 0, -1, now)
        assert self.attached == set(), "the copy has outlived its request"
        self.ended = reason
        self.ring.ring.clear()
        if world.queue is not None:
            world.queue.wake()
        world.requests.remove(self)


def other(request: Driven, attempt: Attempt, reason: Reason) -> Rest | None:
    """Lets any other replica generate the rest of a broken stream, at most twice."""
    driver = request.driver
    others = driver.others()
    if not others or driver.state.resumptions > 1 or not driver.take_budget():
        return None
    return [*others], [b"the rest"]


class World:
    """One router, its fleet and its requests. Replicas are `r0`, `r1` and so on."""

    def __init__(
        self,
        replicas: int = 3,
        *,
        queue: Queue | None = None,
        hedging: Hedging | None = None,
        retry: Retry | None = None,
        timeouts: Timeouts | None = None,
        classes: Classes | None = None,
        resumes: Callable[[Driven, Attempt, Reason], Rest | None] = other,
        health: Health | None = None,
        most: int | None = None,
        seed: int = 1,
        regions: Sequence[str] = ("",),
        models: tuple[str, ...] = ("m",),
        lengths: Sequence[int | None] = (None,),
        starts_at: float = 1000.0,
    ) -> None:
        """`most`: maximum number of requests at one replica; None: unlimited. `regions`: the
        replicas join these regions in turn. `models`: the models of each replica. `lengths`: their
        context lengths, in turn. `starts_at`: the time at the beginning, in virtual seconds.
        `resumes`: see `Request.rest`; called for requests that are `continued`.

        Without `retry` there is no pause before a retry; without `hedging` there are no copies.
        """
        config = Config(
            retry=Retry(backoff_s=0.0) if retry is None else retry,
            hedging=Hedging(policy="off") if hedging is None else hedging,
            timeouts=Timeouts() if timeouts is None else timeouts,
            health=Health(eject_after=100) if health is None else health,
            queue=Queue(enabled=False) if queue is None else queue,
            classes=Classes() if classes is None else classes,
        )
        self.config = config
        self.resumes = resumes
        self.said: list[str] = []
        self.time = Time(starts_at)
        self.requests: list[Driven] = []  # in progress
        self.all: list[Driven] = []
        self.policy = InOrder()
        self.refusing: set[str] = set()  # replicas that refuse connections before `open` returns
        self.broken = ""  # the method of the port that raises an error for a copy
        self.concurrency = Concurrency(1)  # concurrency limit of a key that tests may use
        self._most = most
        self._regions = regions
        self._models = models
        self.lengths = lengths
        rng = Random(seed)
        self.metrics = Metrics()
        knowledge = PrefixLookup(Prefix())
        self.fleet = Fleet(
            config.health,
            cast(Any, self.time),
            rng,
            lambda _: None,
            lambda *_: None,
            knowledge,
            clock=self.time.now,
        )
        self.chooser = Chooser(
            Policies(self.policy, {}, 64),
            knowledge,
            self.metrics,
            rng,
            self.fleet.nearest,
            self.fleet.adapter_names,
        )
        self.replicas: list[Replica] = []  # includes removed replicas
        for number in range(replicas):
            self.joins(f"r{number}")
        self.counts = HedgeCounts()
        self.hedger = Hedger(config.hedging, self.fleet, self.counts)
        self.context = Context(
            config, self.fleet, self.chooser, self.hedger, self.metrics, self.time, rng
        )
        self.queue = self.context.queue
        self.budget = self.context.budget
        self.time.turn()

    def adopts(self, **sections: Any) -> None:
        """A reload gives the queue a configuration that differs in these sections."""
        assert self.queue is not None
        self.config = msgspec.structs.replace(self.config, **sections)
        self.queue.adopt(self.config)

    # -- the fleet --------------------------------------------------------------------------------

    def joins(self, id: str, *, is_tried: bool = True) -> Replica:
        """A replica joins. Without `is_tried`, its first probe is still running."""
        config = ReplicaConfig(
            url=f"http://{id}:1",
            id=id,
            models=self._models,
            engine="vllm",
            max_inflight=self._most,
            region=self._regions[len(self.replicas) % len(self._regions)],
            max_model_len=self.lengths[len(self.replicas) % len(self.lengths)],
        )
        replica = Replica(config, self.config.health, None)
        if not is_tried:
            replica.health.await_probe()
        self.replicas.append(replica)
        self.fleet.add(replica)
        return replica

    def goes_down(self, id: str) -> None:
        """Let the replica's probes fail."""
        replica = self.fleet.replicas[id]
        for _ in range(self.config.health.fall):
            self.fleet.probes.probed(replica, False)

    def moves(self, id: str, region: str) -> None:
        """A reload changes the region of a replica."""
        replica = self.fleet.replicas[id]
        replica.adopt(
            msgspec.structs.replace(replica.config, region=region), self.config.health, None
        )
        self.fleet.rebuild()

    def grows(self, id: str) -> None:
        """A reload removes the request limit of a replica."""
        replica = self.fleet.replicas[id]
        config = msgspec.structs.replace(replica.config, max_inflight=None)
        replica.adopt(config, self.config.health, None)
        self.fleet.rebuild()

    # -- requests ---------------------------------------------------------------------------------

    def arrives(self, name: str, urgency: str = "normal", **fields: Any) -> Driven:
        """A request arrives. `fields`: see `Driven`."""
        request = Driven(self, name, urgency, **fields)
        self.requests.append(request)
        self.all.append(request)
        place(request.driver)
        return request

    def of(self, name: str) -> Driven:
        (found,) = [request for request in self.requests if request.name == name]
        return found

    # -- invariants -------------------------------------------------------------------------------

    def check(self) -> None:
        """Leases, budgets and engines match the live attempts."""
        works = [r for r in self.requests if not r.route.light]
        live = [attempt for request in self.requests for attempt in request.running]
        loads = [attempt for request in works for attempt in request.running]
        for replica in self.replicas:
            assert replica.inflight == sum(a.at is replica for a in live), replica.id
            here = [attempt for attempt in loads if attempt.at is replica]
            assert replica.load == len(here), replica.id
            waits = [a for a in here if a.phase != Phase.WON]
            assert replica.waiting == len(waits), replica.id
            assert replica.pending_tokens == sum(a.tokens for a in waits), replica.id
        for request in self.requests:
            driver = request.driver
            assert driver.state.live == [a for a in driver.state.attempts if a.phase != Phase.ENDED]
            assert all(attempt.held for attempt in driver.state.live)
            assert request.attached == set(request.running)
            kinds = [attempt.kind for attempt in driver.state.attempts]
            assert kinds.count("hedge") <= 1
            assert len(driver.state.live) <= 2 and (len(driver.state.live) < 2 or "hedge" in kinds)
            if driver.state.commit == Commit.CONTENT:
                assert len(driver.state.live) <= 1
            if request.deadlines.waits_since >= 0.0:
                assert driver.state.live == [], "it waits in the queue and runs"
        begun: Counter[str] = Counter()
        finished: Counter[str] = Counter()
        for request in self.all:
            for attempt in request.driver.state.attempts:
                begun[attempt.replica_id] += 1
                # The end of the winner is reported when its request is over.
                is_winner = attempt is request.driver.state.winner
                if attempt.phase == Phase.ENDED and (request.ended is not None or not is_winner):
                    finished[attempt.replica_id] += 1
        assert (self.policy.begun, self.policy.finished) == (begun, finished)
        retried = sum(request.driver._budgeted for request in self.requests)
        assert self.budget.retries == retried
        assert self.budget.requests == len(self.requests)
        counts = self.counts
        copies = sum(attempt.kind == "hedge" and attempt.phase != Phase.WON for attempt in live)
        assert counts.fired == counts.won + counts.lost + counts.failed + copies
        assert counts.budget_tokens >= 0.0
        assert counts.fired_tokens >= 0
        if self.queue is not None:
            assert self.queue.pools.waiting == sum(
                r.deadlines.waits_since >= 0.0 for r in self.requests
            )

    def check_empty(self) -> None:
        """No request is left, and nothing is held for one that has ended."""
        assert self.requests == []
        self.check()
        assert self.budget.retries == 0
        assert len(self.context.first_probes) == 0
        self.time.turn()
        self.time.discard(self.fleet)
        assert not self.time.rings, "an alarm is left behind"
        assert not self.fleet.leaving
