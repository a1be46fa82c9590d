"""Which attempts of a request teach the speed of their replicas, and when."""

import pytest

from router.core.errors import Reason
from router.dispatch.driver.request_end import end_request
from router.dispatch.usage.token_counts import Usage
from router.fleet.replica import Replica
from tests.dispatch.driven import Driven, World


def samples(replica: Replica) -> tuple[int, int]:
    learner = replica.learned.speeds
    return learner.prefill.samples, learner.decode.samples


def answered(world: World, usage: Usage, *, streamed: bool = True) -> Driven:
    request = world.arrives("a", "high", streamed=streamed)
    (attempt,) = request.driver.state.live
    world.time.passes(0.25)
    request.shows(attempt)
    world.time.passes(1.0)
    request.work.usage = usage
    request.driver.completed(attempt, Reason.OK, world.time.at)
    end_request(request.driver, Reason.OK, 200, 500, -1, world.time.at)
    return request


@pytest.mark.parametrize(
    ("usage", "streamed", "expected"),
    [
        (Usage(128, 40, 0, True), True, (1, 1)),
        (Usage(128, 40, 0, False), True, (1, 0)),  # an estimated number of tokens
        (Usage(128, None, 0, True), True, (1, 0)),
        (Usage(128, 40, 0, True), False, (0, 0)),  # it shows nothing before its last token
    ],
)
def test_a_stream_teaches(usage: Usage, streamed: bool, expected: tuple[int, int]) -> None:
    world = World(1)
    request = answered(world, usage, streamed=streamed)
    (replica,) = world.replicas
    assert samples(replica) == expected
    assert replica.context_tokens == 0
    assert all(attempt.speed_sample is None for attempt in request.driver.state.attempts)


def test_an_attempt_without_content_is_a_sample_only_if_it_waited_for_long() -> None:
    world = World(1)
    (replica,) = world.replicas
    for seconds, expected in ((0.001, 0), (30.0, 1)):
        request = world.arrives(f"a{seconds}", "high")
        (attempt,) = request.driver.state.live
        request.driver.connected(attempt)
        world.time.passes(seconds)
        request.leaves()
        assert samples(replica) == (expected, 0)


def test_an_attempt_that_was_never_sent_teaches_nothing() -> None:
    world = World(1)
    request = world.arrives("a", "high")
    world.time.passes(5.0)
    request.leaves()
    assert samples(world.replicas[0]) == (0, 0)


def test_a_stream_that_breaks_is_no_decode_sample_and_leaves_no_load() -> None:
    world = World(1)
    (replica,) = world.replicas
    request = world.arrives("a", "high")
    (attempt,) = request.driver.state.live
    world.time.passes(0.25)
    request.shows(attempt)
    assert replica.context_tokens > 0
    world.time.passes(1.0)
    request.fails(attempt, Reason.REPLICA_RESET)
    assert samples(replica) == (1, 0)
    assert replica.context_tokens == 0


def test_a_client_that_pauses_hides_the_times() -> None:
    world = World(1)
    request = world.arrives("a", "high")
    (attempt,) = request.driver.state.live
    request.deadlines.paused(world.time.at, 60.0)
    world.time.passes(0.25)
    request.shows(attempt)
    request.whole(attempt)
    assert samples(world.replicas[0]) == (0, 0)
