"""When a request goes to the next fallback of its model, and when it ends."""

from typing import Any

import pytest

from policies.allowed import Allowed
from router.config.load import parse
from router.config.model import Queue
from router.core.errors import Reason
from router.dispatch.driver.attempt_state import Kind
from router.dispatch.driver.fallbacks import CONDITIONS, DEADLINE, FAILURE, NO_REPLICA, QUEUE_FULL
from router.dispatch.driver.placing import falls_back, falls_back_from
from router.dispatch.driver.retries import failed
from router.fleet.membership import Duty
from router.fleet.names import Names
from router.intake.flow import Flow
from tests.dispatch.driven import BODY, Driven, World
from tests.dispatch.driver.driver_tables import HEDGED, PAUSES, play

QUEUES = pytest.mark.parametrize("queue", [Queue(enabled=False), Queue()], ids=["none", "queue"])


def falling(world: World, name: str = "q", **fields: Any) -> Driven:
    """A running request for the model `m`, which falls back to `b` and then to `c`."""
    route = {"fallbacks": ["b", "c"], **fields.pop("route", {})}
    named = Names(parse("", {"models": {"m": route}}, serves=False)).find("m")
    return world.arrives(name, named=named, **fields)


def world(queue: Queue | None = None, **settings: Any) -> World:
    return World(2, queue=queue, models=("m", "b", "c"), **settings)


@QUEUES
@pytest.mark.parametrize("reason", list(Reason), ids=lambda reason: reason.value)
def test_each_reason_has_a_condition_or_ends_the_request(reason: Reason, queue: Queue) -> None:
    at = world(queue)
    request = falling(at)
    request.driver.recall(at.time.at)
    assert falls_back(request.driver, reason) is (reason in CONDITIONS)
    if reason in CONDITIONS:
        assert request.view.model == "b"
        assert request.driver.state.live[0].kind == Kind.FALLBACK
        assert at.metrics.fallbacks_by_cause == {CONDITIONS[reason]: 1}


def test_the_conditions_are_those_of_the_configuration() -> None:
    assert set(CONDITIONS.values()) == {NO_REPLICA, QUEUE_FULL, DEADLINE, FAILURE}
    for reason, condition in CONDITIONS.items():
        for on in (NO_REPLICA, QUEUE_FULL, DEADLINE, FAILURE):
            at = world()
            request = falling(at, route={"fall_back_on": [on]})
            request.driver.recall(at.time.at)
            assert falls_back(request.driver, reason) is (on == condition)


@QUEUES
def test_the_policy_gets_the_time_of_the_fallback_and_not_of_the_arrival(queue: Queue) -> None:
    at = world(queue)
    request = falling(at)
    assert at.policy.picked_at == request.arrived
    at.time.passes(5.0)
    request.driver.recall(at.time.at)
    assert falls_back(request.driver, Reason.CONNECT_FAILED)
    assert at.policy.picked_at == at.time.at > request.arrived


@QUEUES
def test_the_replicas_of_the_first_model_may_serve_the_fallback(queue: Queue) -> None:
    """The client gets the error of the last fallback."""
    at = world(queue)
    request = falling(at)
    for _ in range(9):
        at.time.passes(0.1)
        if request.driver.state.live:
            attempt = request.driver.state.live[0]
            request.driver.connected(attempt)
            request.drop(attempt)
            failed(request.driver, attempt, Reason.TTFT_TIMEOUT)
    assert request.ended is Reason.TTFT_TIMEOUT
    kinds = [attempt.kind for attempt in request.driver.state.attempts]
    assert kinds == [Kind.PRIMARY, Kind.FALLBACK, Kind.FALLBACK]


@QUEUES
def test_a_fallback_is_retried_where_the_first_model_has_failed(queue: Queue) -> None:
    at = world(queue)
    at.refusing = {"r0", "r1"}
    falling(at)
    of_a_fallback = ["fallback q to r0", "retry q to r1"]
    assert at.said[:6] == ["send q to r0", "retry q to r1", *of_a_fallback, *of_a_fallback]


def test_an_error_leads_to_a_fallback_if_no_other_attempt_may_answer() -> None:
    at = world(hedging=HEDGED)
    request = falling(at)
    at.time.passes(1.0)
    first, copy = request.driver.state.live
    assert not falls_back_from(request.driver, first, Reason.SERVER_ERROR)
    assert request.driver.state.live == [first, copy]
    request.fails(first, Reason.REPLICA_RESET)
    assert not falls_back_from(request.driver, first, Reason.SERVER_ERROR), "it has ended"
    assert request.driver.state.live == [copy]
    assert falls_back_from(request.driver, copy, Reason.SERVER_ERROR)
    assert at.said[-2:] == ["discard q at r1", "fallback q to r0"]


def test_a_request_that_waited_for_a_first_probe_may_take_its_time_at_a_fallback() -> None:
    """The time limit of its wait must not end it there."""
    at = world(retry=PAUSES)
    falling(at)
    play(
        at,
        """
        r0 503s q         -> discard q at r0
        r1 leaves         -> nothing
        r2 joins-untried  -> nothing
        0.25s passes      -> nothing
        r2 goes-down      -> fallback q to r0
        3s passes         -> nothing
        r0 ends q         -> show q from r0; release q at r0; end q: ok
        """,
    )
    at.check_empty()


@pytest.mark.parametrize("missing", [0, BODY], ids=["connections are short", "memory is short"])
def test_a_request_that_is_evicted_for_its_memory_goes_to_no_fallback(missing: int) -> None:
    """It would wait for the fallback with its connection and its body."""
    at = world(Queue(), most=1)
    queue = at.queue
    assert queue is not None
    waiting = [falling(at, name, key="k") for name in ("a", "b", "c", "d", "e")][2:]
    assert queue.relieve(Flow("other", "", ""), missing)
    at.time.turn()
    assert [request.ended for request in waiting] == [None, None, Reason.QUEUE_EVICTED]


@pytest.mark.parametrize(
    ("reason", "falls"), [(Reason.CONNECT_FAILED, True), (Reason.REPLICA_RESET, False)]
)
def test_a_request_that_may_not_be_repeated(reason: Reason, falls: bool) -> None:
    at = world()
    request = falling(at, repeatable=False)
    request.driver.recall(at.time.at)
    assert falls_back(request.driver, reason) is falls


def test_a_request_that_crashes_replicas_reaches_two_of_them() -> None:
    at = World(4, models=("m", "b", "c"))
    request = falling(at)
    for _ in range(6):
        if request.driver.state.live:
            attempt = request.driver.state.live[0]
            request.driver.connected(attempt)
            request.drop(attempt)
            failed(request.driver, attempt, Reason.REPLICA_RESET)
        at.time.passes(0.5)
    assert request.ended is Reason.REPLICA_RESET
    assert len(request.driver.state.attempts) == 2


def test_a_request_that_is_pinned_or_whose_body_is_gone_ends() -> None:
    at = world()
    request = falling(at)
    request.driver.recall(at.time.at)
    request.body = None
    assert not falls_back(request.driver, Reason.SERVER_ERROR)
    request.is_kept = True
    request.pinned = at.replicas[0]
    assert not falls_back(request.driver, Reason.SERVER_ERROR)


def test_a_router_that_stops_begins_no_fallback() -> None:
    at = world()
    request = falling(at)
    request.driver.recall(at.time.at)
    at.context.closing = True
    assert not falls_back(request.driver, Reason.SERVER_ERROR)


def test_the_fallback_stays_in_the_allowed_regions() -> None:
    at = World(2, models=("m", "b", "c"), regions=("eu", "us"))
    request = falling(at, allowed=Allowed(["us"]))
    assert request.driver.state.live[0].replica_id == "r1"
    request.driver.recall(at.time.at)
    assert falls_back(request.driver, Reason.SERVER_ERROR)
    assert request.driver.state.live[0].replica_id == "r1"
    request.driver.recall(at.time.at)
    at.fleet.set_duty(at.replicas[1], Duty.CORDONED)
    assert not falls_back(request.driver, Reason.SERVER_ERROR)


def test_a_fallback_waits_for_its_replicas_as_long_as_any_request() -> None:
    """The time for which the first model could not be reached does not count."""
    at = world(Queue())
    at.refusing = {"r0", "r1"}
    request = falling(at, route={"fall_back_on": [NO_REPLICA]})
    began = request.unreached_since
    at.time.passes(5.2)
    assert request.unreached_since == began >= 0.0, "it has waited all the time"
    while request.driver.state.live:
        at.time.passes(0.1)
    assert falls_back(request.driver, Reason.NO_REPLICA)
    assert request.unreached_since != began
