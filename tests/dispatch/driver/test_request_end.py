"""The resources, counters and learned values after each kind of end of a request."""

import pytest

from router.core.errors import Reason
from router.dispatch.driver import request_end
from router.dispatch.driver.request_end import end_request, status_of
from router.dispatch.usage.token_counts import UNKNOWN, Usage
from tests.dispatch.driven import Driven, World

TOOK_S = 1.0  # seconds from the first content to the end


def ended(
    world: World,
    usage: Usage,
    *,
    reason: Reason = Reason.OK,
    sent: int = 200,
    events: int = -1,
    streamed: bool = True,
) -> Driven:
    """A request of class high that one replica has answered."""
    request = world.arrives("a", "high", streamed=streamed)
    (attempt,) = request.driver.state.live
    world.time.passes(0.25)
    request.shows(attempt)
    world.time.passes(TOOK_S)
    request.work.usage = usage
    request.driver.completed(attempt, reason, world.time.at)
    end_request(request.driver, reason, sent, 500, events, world.time.at)
    return request


def test_the_engines_counts_are_counted_and_its_pace_is_learned() -> None:
    world = World(1)
    request = ended(world, Usage(100, 11, 40, True), events=5)
    (replica,) = world.replicas
    counts, high = world.metrics.kinds["chat"], world.metrics.classes["high"]
    assert counts.ends == {(Reason.OK, 200): 1}
    assert (counts.bytes_in, counts.bytes_out) == (request.view.body_bytes, 500)
    assert high.ttft.sum == pytest.approx(0.25)
    assert high.duration.sum == pytest.approx(0.25 + TOOK_S)
    assert high.tpot.sum == pytest.approx(TOOK_S / 10)
    assert replica.tpot_s == pytest.approx(TOOK_S / 10)
    counted = world.metrics.models["m", "", "high"]
    assert (counted.requests, counted.prompt, counted.output) == (1, 100, 11)
    assert counted.cached == 40
    assert world.metrics.attempts == {("r0", "primary", Reason.OK): 1}
    assert world.policy.finished == {"r0": 1}
    assert world.budget.requests == 0


@pytest.mark.parametrize(
    ("usage", "events", "streamed", "is_paced"),
    [
        (Usage(None, 11, None, False), 11, True, True),  # tokens counted one by one
        (Usage(None, 11, None, False), -1, True, False),  # tokens estimated from the bytes
        (Usage(100, 11, None, True), -1, True, True),
        (Usage(100, 11, None, True), -1, False, False),  # the answer came in one piece
        (Usage(100, 1, None, True), 1, True, False),
        (Usage(100, 2, None, True), 2, True, True),
        (UNKNOWN, 3, True, False),
    ],
)
def test_the_token_rate_is_learned_from_counted_tokens_only(
    usage: Usage, events: int, streamed: bool, is_paced: bool
) -> None:
    world = World(1)
    ended(world, usage, events=events, streamed=streamed)
    (replica,) = world.replicas
    assert (replica.tpot_s is not None) == is_paced
    assert bool(world.metrics.classes["high"].tpot.sum) == is_paced
    output = world.metrics.models["m", "", "high"].output
    assert bool(output) == (usage is not UNKNOWN)


@pytest.mark.parametrize("breaks", [False, True])
def test_a_client_that_pauses_hides_the_token_rate(breaks: bool) -> None:
    """Also if the pause was before another replica continued the stream."""
    world = World(2)
    request = world.arrives("a", "high", continued=True)
    (attempt,) = request.driver.state.live
    request.shows(attempt)
    request.deadlines.paused(world.time.at, 60.0)
    world.time.passes(10.0)
    request.deadlines.resumed(world.time.at)
    if breaks:
        request.fails(attempt, Reason.REPLICA_RESET)
        (attempt,) = request.driver.state.live
        request.shows(attempt)
    request.work.usage = Usage(100, 11, 40, True)
    request.whole(attempt)
    assert len(request.driver.state.attempts) == 1 + breaks
    high = world.metrics.classes["high"]
    assert high.tpot.sum == 0.0
    assert (high.slo_ttft.requests, high.slo_tpot.requests) == (1, 0)
    assert all(replica.tpot_s is None for replica in world.replicas)


@pytest.mark.parametrize(
    ("blocks", "is_exact", "learned"), [((1, 2), True, 3.0), ((1, 2), False, 4.0), ((), True, 4.0)]
)
def test_the_bytes_per_token_are_learned_from_exact_counts_of_long_prompts(
    blocks: tuple[int, ...], is_exact: bool, learned: float
) -> None:
    world = World(1)
    request = world.arrives("a", blocks=blocks)
    request.view.prompt_bytes = 300
    request.work.usage = Usage(100, 11, None, is_exact)
    request.whole(request.driver.state.live[0])
    # The first observation replaces the default: 300 bytes of 100 tokens.
    assert world.fleet.knowledge.ratio.of("m") == pytest.approx(learned)


@pytest.mark.parametrize(
    ("blocks", "reason", "expected_hits"),
    [((1, 2), Reason.OK, 1), ((), Reason.OK, 0), ((1, 2), Reason.REPLICA_RESET, 0)],
    ids=["held", "no blocks", "broken"],
)
def test_a_cache_hit_is_expected_of_an_answered_request_whose_prefix_was_held(
    blocks: tuple[int, ...], reason: Reason, expected_hits: int
) -> None:
    world = World(1)
    (replica,) = world.replicas
    first = world.arrives("first", blocks=blocks)
    first.whole(first.driver.state.live[0])
    assert replica.reports._expected_hits == 0
    second = world.arrives("second", blocks=blocks)
    (attempt,) = second.driver.state.live
    second.shows(attempt)
    if reason is Reason.OK:
        second.whole(attempt)
    else:
        second.fails(attempt, reason)
    assert replica.reports._expected_hits == expected_hits


def test_nothing_is_learned_from_an_unanswered_request() -> None:
    world = World(1)
    request = world.arrives("a", "high")
    request.driver.cancel(Reason.CLIENT_GONE)
    end_request(request.driver, Reason.CLIENT_GONE, 0, 0, -1, world.time.at)
    counts = world.metrics.kinds["chat"]
    assert counts.ends == {(Reason.CLIENT_GONE, 499): 1}
    assert counts.ttft.sum == 0.0
    assert not any(counted.prompt for counted in world.metrics.models.values())
    assert world.metrics.attempts == {("r0", "primary", Reason.CLIENT_GONE): 1}
    assert world.policy.finished == {"r0": 1}  # counted for the replica of its attempt
    assert world.budget.requests == 0


@pytest.mark.parametrize(
    ("usage", "reason", "is_answered", "tokens", "output"),
    [
        (Usage(100, 11, 40, True), Reason.OK, True, 60, 11),
        (Usage(100, None, None, True), Reason.OK, True, 100, -1),
        (Usage(100, None, None, True), Reason.REPLICA_RESET, True, 100, 0),
        (Usage(None, 11, None, False), Reason.OK, True, -1, 11),
        (UNKNOWN, Reason.OK, True, -1, -1),
        (UNKNOWN, Reason.CONNECT_FAILED, False, -1, 0),
    ],
)
def test_the_queue_gets_the_uncached_tokens(
    usage: Usage, reason: Reason, is_answered: bool, tokens: int, output: int
) -> None:
    """The output of an answer without counts is unknown; of a failure, it is what was counted."""
    assert request_end._cost(usage, reason, is_answered) == (tokens, output)


@pytest.mark.parametrize(
    ("sent", "reason", "status"),
    [
        (200, Reason.OK, 200),
        (200, Reason.REPLICA_RESET, 200),  # the response broke off
        (0, Reason.REPLICA_RESET, 502),
        (0, Reason.QUEUE_FULL, 429),
        (404, Reason.REPLICA_REFUSED, 404),
        (200, Reason.CLIENT_GONE, 499),
    ],
)
def test_a_request_is_counted_by_the_status_that_was_sent(
    sent: int, reason: Reason, status: int
) -> None:
    assert status_of(sent, reason) == status


def test_a_policy_sees_whether_a_request_decodes() -> None:
    world = World(1)
    assert world.arrives("a").view.decodes
    assert not world.arrives("b", light=True).view.decodes
