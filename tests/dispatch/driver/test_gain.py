"""The gain and the SLOs of requests, by how they ended."""

from dataclasses import dataclass

import pytest

from router.core.errors import Reason
from router.dispatch.driver.request_end import end_request
from router.dispatch.usage.token_counts import UNKNOWN, Usage
from router.observe.metrics import ClassCounts
from tests.dispatch.driven import Driven, World

TTFT_S, TPOT_S, WORTH = 0.5, 0.05, 8.0  # of class high


@dataclass
class Ended:
    """One request of class high that has ended."""

    world: World
    request: Driven

    @property
    def tokens(self) -> tuple[float, float]:
        return self.request.work.tokens_on_time, self.request.work.tokens_due

    @property
    def high(self) -> ClassCounts:
        return self.world.metrics.classes["high"]

    @property
    def verdicts(self) -> dict[str, tuple[int, int]]:
        """Of each SLO that applied: the number of requests, and how many met it."""
        high = self.high
        found = {"ttft": high.slo_ttft, "tpot": high.slo_tpot, "all": high.slo_whole}
        return {slo: (each.requests, each.met) for slo, each in found.items() if each.requests}


def ended(
    reason: Reason = Reason.OK,
    *,
    first_s: float | None = 0.25,
    took_s: float = 1.0,
    output: int | None = 11,
    streamed: bool = True,
    timely: float = -1.0,
    predicted: int = -1,
    sent: int = 200,
) -> Ended:
    """`first_s`: time to the first content; None: none came. `took_s`: from then to the end."""
    world = World(1)
    request = world.arrives("a", "high", streamed=streamed)
    request.view.output_tokens = predicted
    (attempt,) = request.driver.state.live
    if first_s is not None:
        world.time.passes(first_s)
        request.shows(attempt)
    world.time.passes(took_s)
    if output is not None:
        request.work.usage = Usage(100, output, None, True)
    request.work.timely = timely
    if reason is Reason.OK:
        request.driver.completed(attempt, reason, world.time.at)
    else:
        request.driver.cancel(reason)
    end_request(request.driver, reason, sent, 0, -1 if output is None else output, world.time.at)
    return Ended(world, request)


# -- answers --------------------------------------------------------------------------------------


def test_a_stream_at_twice_the_rate_of_its_slo_is_all_on_time() -> None:
    one = ended(took_s=0.25)
    assert one.tokens == (11.0, 11.0)
    assert one.verdicts == {"ttft": (1, 1), "tpot": (1, 1), "all": (1, 1)}
    assert (one.high.gain_achieved, one.high.gain_attainable) == (11 * WORTH, 11 * WORTH)


def test_a_late_first_token_does_not_make_the_rest_late() -> None:
    """The first token is 0.25 s late. Each further token is 0.025 s faster than its SLO, so the
    twelfth is on time.
    """
    one = ended(first_s=0.75, took_s=0.025 * 20, output=21)
    assert one.tokens == (pytest.approx(10.0, abs=1.0), 21.0)
    assert one.verdicts == {"ttft": (1, 0), "tpot": (1, 1), "all": (1, 0)}
    assert one.high.gain_achieved == one.tokens[0] * WORTH


def test_a_slow_stream_misses_its_tpot_only() -> None:
    one = ended(took_s=0.1 * 10)
    assert one.tokens == (5.0, 11.0)  # 0.25 s ahead, and 0.05 s less with each token
    assert one.verdicts == {"ttft": (1, 1), "tpot": (1, 0), "all": (1, 0)}


def test_the_share_of_events_is_scaled_to_the_tokens() -> None:
    assert ended(timely=0.25, output=40).tokens == (10.0, 40.0)
    assert ended(timely=0.0, output=40).tokens == (0.0, 40.0)


def test_a_stream_of_one_token_has_no_tpot() -> None:
    one = ended(output=1)
    assert one.tokens == (1.0, 1.0)
    assert one.verdicts == {"ttft": (1, 1), "all": (1, 1)}


@pytest.mark.parametrize(("took_s", "on_time"), [(0.7, 11.0), (0.8, 0.0)])
def test_a_whole_answer_is_due_with_its_last_token(took_s: float, on_time: float) -> None:
    """The last of 11 tokens is due after 0.5 s + 10 x 0.05 s."""
    one = ended(took_s=took_s, streamed=False)
    assert one.tokens == (on_time, 11.0)
    assert one.verdicts == {"all": (1, int(on_time > 0.0))}


@pytest.mark.parametrize("output", [None, 0])
def test_an_answer_without_counted_tokens_is_one_token(output: int | None) -> None:
    assert ended(output=output, took_s=0.2, streamed=False).tokens == (1.0, 1.0)
    assert ended(output=output, took_s=0.4, streamed=False).tokens == (0.0, 1.0)


# -- other ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "sent"),
    [(Reason.QUEUE_FULL, 0), (Reason.REPLICA_RESET, 0), (Reason.DEADLINE_PASSED, 0)],
)
@pytest.mark.parametrize(("predicted", "due"), [(-1, 1.0), (0, 1.0), (40, 40.0)])
def test_a_failed_request_could_have_had_the_predicted_answer(
    reason: Reason, sent: int, predicted: int, due: float
) -> None:
    one = ended(reason, first_s=None, output=None, predicted=predicted, sent=sent)
    assert one.tokens == (0.0, due)
    assert one.verdicts == {"ttft": (1, 0), "all": (1, 0)}
    assert (one.high.gain_achieved, one.high.gain_attainable) == (0.0, due * WORTH)


def test_a_broken_stream_has_no_token_on_time() -> None:
    one = ended(Reason.REPLICA_RESET, took_s=0.2, predicted=8)
    assert one.tokens == (0.0, 11.0)
    assert one.verdicts == {"ttft": (1, 0), "all": (1, 0)}


def test_tokens_of_a_client_that_left_count_as_far_as_they_came() -> None:
    one = ended(Reason.CLIENT_GONE, took_s=0.25, predicted=500)
    assert one.tokens == (11.0, 11.0)
    assert one.verdicts == {"ttft": (1, 1), "tpot": (1, 1), "all": (1, 1)}


def test_tokens_that_were_due_when_the_client_left_count() -> None:
    """It left 1.77 s after the first deadline, so 36 tokens are due."""
    one = ended(Reason.CLIENT_GONE, took_s=2.02, timely=1.0, predicted=500)
    assert one.tokens == (11.0, 36.0)
    few = ended(Reason.CLIENT_GONE, took_s=2.02, timely=1.0, predicted=20)
    assert few.tokens == (11.0, 20.0)


@pytest.mark.parametrize(("took_s", "due"), [(0.4, None), (0.62, 3.0), (9.0, 30.0)])
def test_a_client_that_left_before_any_content(took_s: float, due: float | None) -> None:
    one = ended(Reason.CLIENT_GONE, first_s=None, took_s=took_s, output=None, predicted=30, sent=0)
    if due is None:  # no deadline had passed
        assert one.verdicts == {} and one.tokens == (-1.0, -1.0)
        return
    assert one.tokens == (0.0, due)
    assert one.verdicts == {"ttft": (1, 0), "all": (1, 0)}


def test_work_that_no_client_received_is_not_on_time() -> None:
    """The usage is then an estimate of the engine's work."""
    one = ended(Reason.CLIENT_GONE, first_s=None, took_s=9.0, output=25, predicted=30, sent=0)
    assert one.tokens == (0.0, 30.0)


@pytest.mark.parametrize(
    ("reason", "sent"),
    [
        (Reason.REPLICA_REFUSED, 400),
        (Reason.REPLICA_REFUSED, 404),
        (Reason.MODEL_NOT_FOUND, 0),
        (Reason.KEY_REQUESTS, 0),
    ],
)
def test_the_clients_own_fault_does_not_count(reason: Reason, sent: int) -> None:
    one = ended(reason, output=None, sent=sent)
    assert one.tokens == (-1.0, -1.0)
    assert one.verdicts == {}
    assert one.high.gain_attainable == 0.0


def test_an_engines_429_counts_as_a_failure() -> None:
    assert ended(Reason.REPLICA_REFUSED, output=None, sent=429).tokens == (0.0, 1.0)


def test_a_request_without_gpu_work_has_no_slo() -> None:
    world = World(1)
    request = world.arrives("a", "high", light=True)
    request.driver.cancel(Reason.REPLICA_RESET)
    end_request(request.driver, Reason.REPLICA_RESET, 0, 0, -1, world.time.at)
    assert Ended(world, request).verdicts == {}
    assert request.work.usage is UNKNOWN


def test_stated_slos_replace_those_of_the_class() -> None:
    world = World(1)
    request = world.arrives("a", "high")
    slos = world.context.rules.slos[request.urgency.rank]
    slos.state(request.view, None, 2.0, 0.5)
    (attempt,) = request.driver.state.live
    world.time.passes(1.5)
    request.shows(attempt)
    world.time.passes(4.0)
    request.work.usage = Usage(100, 11, None, True)
    request.driver.completed(attempt, Reason.OK, world.time.at)
    end_request(request.driver, Reason.OK, 200, 0, 11, world.time.at)
    one = Ended(world, request)
    assert one.tokens == (11.0, 11.0)
    assert one.verdicts == {"ttft": (1, 1), "tpot": (1, 1), "all": (1, 1)}
