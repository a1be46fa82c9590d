"""The estimates of requests at their arrival, and the refusal of those that would be late."""

import pytest

from router.config.model import Classes, ClassSettings, Queue, QueueGates
from router.core.conformal import LEAST as SCORES
from router.core.errors import Reason
from router.core.speed_learner import LEAST as SAMPLES
from router.dispatch.driver.arrival_estimate import SAMPLE, if_it_waits
from tests.dispatch.driven import Driven, World

KNOWN = SAMPLES + SCORES
TOOK_S = 0.25
REFUSES = Classes(normal=ClassSettings(ttft_slo_s=0.1, late="refuse"))
ONE_WAITS = QueueGates(waiting=1, prefill_tokens=0)


def taught(world: World, count: int = KNOWN) -> World:
    """Each of these requests had its first token after the same time."""
    for number in range(count):
        request = world.arrives(f"t{number}")
        if request.ended is None:
            answered(world, request)
    return world


def answered(world: World, request: Driven, took_s: float = TOOK_S) -> None:
    (attempt,) = request.driver.state.live
    world.time.passes(took_s)
    request.whole(attempt)


def test_the_estimate_is_the_prediction_of_the_dispatch() -> None:
    world = taught(World(1))
    request = world.arrives("a")
    estimate = request.estimate
    assert estimate is not None and estimate.is_given
    (attempt,) = request.driver.state.live
    assert attempt.speed_sample is not None
    assert estimate.predicted_s == attempt.speed_sample.ttft_s
    assert estimate.estimate_s == pytest.approx(TOOK_S, rel=0.05)
    # Another request waits at the replica when the second one is sent.
    second = world.arrives("b").estimate
    assert second is not None
    assert second.predicted_s > estimate.predicted_s
    assert second.idle_s < second.predicted_s


def test_nothing_is_estimated_while_the_speed_is_unknown() -> None:
    world = taught(World(1), SAMPLES - 1)
    assert world.arrives("a").estimate is None


@pytest.mark.parametrize("facts", [{"streamed": False}, {"light": True}])
def test_only_streams_of_engines_have_an_estimate(facts: dict[str, bool]) -> None:
    assert taught(World(1)).arrives("a", **facts).estimate is None


def test_a_retry_keeps_the_estimate_of_the_arrival() -> None:
    world = taught(World(2))
    request = world.arrives("a")
    before = request.estimate
    (attempt,) = request.driver.state.live
    world.time.passes(1.0)
    request.fails(attempt, Reason.CONNECT_FAILED)
    answered(world, request, 0.0)
    assert request.estimate is before
    assert before is not None and before.is_judged and not before.is_kept
    assert world.metrics.classes["normal"].estimates == 1


def test_a_client_that_leaves_early_is_not_judged() -> None:
    world = taught(World(1))
    request = world.arrives("a")
    world.time.passes(0.5 * TOOK_S)
    request.leaves()
    assert request.estimate is not None and not request.estimate.is_judged
    assert world.metrics.classes["normal"].estimates == 0


def test_a_client_that_does_not_read_hides_the_time() -> None:
    world = taught(World(1))
    request = world.arrives("a")
    request.deadlines.paused(world.time.at, 61.0)
    answered(world, request, 60.0)
    assert request.estimate is not None and not request.estimate.is_judged


def test_the_counters_have_the_verdict_and_the_width() -> None:
    world = taught(World(1))
    request = world.arrives("a")
    answered(world, request)
    estimate = request.estimate
    assert estimate is not None and estimate.is_kept
    counts = world.metrics.classes["normal"]
    assert (counts.estimates, counts.estimates_kept) == (1, 1)
    assert counts.estimate_width_s == estimate.high_s - estimate.low_s


@pytest.mark.parametrize("queue", [None, Queue()])
def test_a_request_that_would_be_late_is_refused_before_its_lease(queue: Queue | None) -> None:
    world = taught(World(1, classes=REFUSES, queue=queue))
    world.said.clear()
    request = world.arrives("a")
    assert request.ended is Reason.TTFT_UNREACHABLE
    assert world.said == ["answer a: ttft_unreachable"]
    assert request.driver.state.attempts == []
    assert request.estimate is not None and request.estimate.is_given
    if world.queue is not None:
        counts = world.queue.pools.queues[0].counts
        assert counts.dropped[Reason.TTFT_UNREACHABLE][2] == 1
        assert counts.passed[2] == KNOWN
    world.check()


def test_a_class_that_serves_late_requests_refuses_nothing() -> None:
    world = taught(World(1, classes=REFUSES))
    request = world.arrives("a", "low")
    assert request.ended is None


def test_refused_requests_do_not_prove_themselves() -> None:
    """Without a first token for a while, requests are served, so that a faster engine is seen."""
    world = taught(World(1, classes=REFUSES))
    assert world.arrives("a").ended is Reason.TTFT_UNREACHABLE
    world.time.passes(40.0)
    assert world.arrives("b").ended is None


def test_a_waiting_request_has_the_wait_and_the_usual_time() -> None:
    world = World(1, queue=Queue(policy="fifo", gates=ONE_WAITS))
    taught(world)
    for number in range(2 * SCORES):  # Each pair is one request that is sent and one that waits.
        first, second = world.arrives(f"f{number}"), world.arrives(f"s{number}")
        answered(world, first)
        world.time.passes(0.0)
        answered(world, second)
    first, second, third = (world.arrives(name) for name in "abc")
    assert first.estimate is not None and second.estimate is not None
    assert second.deadlines.waits_since >= 0.0
    assert second.estimate.estimate_s == pytest.approx(2.0 * TOOK_S, rel=0.1)
    assert third.estimate is not None
    assert third.estimate.predicted_s > second.estimate.predicted_s
    answered(world, first)
    world.time.passes(0.0)
    assert second.driver.state.live, "it was sent"
    answered(world, second)
    assert second.estimate.is_kept


def test_a_large_fleet_is_sampled() -> None:
    world = World(3 * SAMPLE)
    for number, replica in enumerate(world.fleet.serving.of("m", None)):
        replica.speed.is_known = True
        replica.speed.base_s = 1.0 + number
        replica.speed.token_s = replica.speed.attention_s = 0.0
    view = world.arrives("a").view
    forecast = if_it_waits(view, world.chooser, world.fleet, world.time.at)
    assert forecast is not None
    assert forecast.idle_s == pytest.approx((1 + 4 + 7 + 10) / 4, abs=0.01)
