"""A replica's speed, learned from its streams: which ones are samples, and which are not."""

from collections.abc import Callable
from random import Random

import pytest

from router.core.lease import Lease
from router.core.replica_load import ReplicaLoad
from router.core.speed_learner import DELAY_MOST, LEAST, OUTPUT_LEAST, SpeedLearner

TOKEN_S, BASE_S, TPOT_S = 1e-4, 0.02, 0.03
UNKNOWN = -1.0


class Engine:
    """A replica that prefills one prompt at a time, and decodes at a constant speed."""

    def __init__(self) -> None:
        self.place = ReplicaLoad("r")
        self.learner = SpeedLearner(self.place.speed)
        self.rng = Random(1)
        self.now = 1000.0

    def serve(
        self,
        *,
        slots: float = UNKNOWN,
        is_timed: bool = True,
        output: int = 20,
        times: float = 1.0,
        network_s: float = 0.0,
    ) -> None:
        """Answer one stream. `network_s`: the time of the first token on its way."""
        tokens = self.rng.randint(100, 4000)
        place, learner = self.place, self.learner
        lease = Lease(place, tokens)
        sample = learner.dispatched(place, tokens, 0, slots, self.now)
        ttft_s = times * (BASE_S + TOKEN_S * tokens) + network_s
        self.now += ttft_s
        lease.begun()
        learner.shown(place, sample, ttft_s, is_timed, self.now)
        self.now += times * TPOT_S * max(0, output - 1)
        lease.release()
        learner.ended(place, sample, output, is_timed, self.now)

    def ttft_s(self, tokens: int) -> float:
        return self.place.speed.ttft_s(0, tokens, 0, 0)


def taught(streams: int = 40) -> Engine:
    engine = Engine()
    for _ in range(streams):
        engine.serve()
    return engine


def test_the_distance_is_not_learned_as_the_speed_of_the_engine() -> None:
    near, far = taught(), Engine()
    far.place.speed.rtt_s = 0.5
    for _ in range(40):
        far.serve(network_s=0.5)
    for tokens in (200, 3000):
        engine_s = far.place.speed.prefill_s(0, tokens, 0, 0)
        assert engine_s == pytest.approx(near.ttft_s(tokens), rel=0.01)
        assert far.ttft_s(tokens) == pytest.approx(near.ttft_s(tokens) + 0.5, rel=0.01)
    assert far.learner.ttft_error.absolute < 0.05


def test_streams_teach_both_speeds() -> None:
    engine = Engine()
    for number in range(100):
        assert engine.place.speed.is_known == (number >= LEAST)
        engine.serve()
    speed, learner = engine.place.speed, engine.learner
    assert engine.ttft_s(2000) == pytest.approx(BASE_S + 2000 * TOKEN_S, rel=0.05)
    assert engine.ttft_s(200) == pytest.approx(BASE_S + 200 * TOKEN_S, rel=0.2)
    speed.delay_share = 0.0
    assert speed.tpot_s(1, 2000) == pytest.approx(TPOT_S, rel=0.1)
    assert learner.ttft_error.count == 100 - LEAST
    assert 0.0 < learner.ttft_error.absolute < 0.1
    assert learner.tpot_error.count == learner.step_error.count == 100 - LEAST
    assert 0.0 < learner.step_error.absolute < 0.1


def with_others_waiting(engine: Engine) -> None:
    engine.place.waiting += 1
    engine.place.foreign_waiting += 1
    engine.serve()


def without_cache_space(engine: Engine) -> None:
    engine.place.kv_usage = 0.99
    engine.serve()


def to_a_client_that_paused(engine: Engine) -> None:
    engine.serve(is_timed=False)


@pytest.mark.parametrize(
    "answers", [with_others_waiting, without_cache_space, to_a_client_that_paused]
)
def test_a_wait_that_is_no_prefill_is_no_sample(answers: Callable[[Engine], None]) -> None:
    engine = taught()
    before = engine.learner.prefill.samples
    predicted = engine.learner.ttft_error.count
    answers(engine)
    assert engine.learner.prefill.samples == before
    assert engine.learner.ttft_error.count == predicted
    engine = taught()
    engine.serve()
    assert engine.learner.prefill.samples == before + 1


@pytest.mark.parametrize(("slots", "is_sample"), [(3.0, True), (2.0, False), (UNKNOWN, True)])
def test_a_free_slot_is_needed(slots: float, is_sample: bool) -> None:
    engine = taught()
    before = engine.learner.prefill.samples
    engine.place.load += 2
    engine.serve(slots=slots)
    assert (engine.learner.prefill.samples > before) == is_sample


def test_a_cancelled_wait_for_a_slot_is_no_sample() -> None:
    engine = taught()
    before = engine.learner.prefill.samples
    Lease(engine.place, 2000)
    sample = engine.learner.dispatched(engine.place, 2000, 0, 0.0, engine.now)
    engine.learner.cut(sample, 60.0, engine.now + 60.0)
    assert engine.learner.prefill.samples == before


@pytest.mark.parametrize(
    ("output", "is_timed", "is_sample"),
    [(20, True, True), (0, True, False), (OUTPUT_LEAST - 1, True, False), (20, False, False)],
)
def test_a_decode_sample_is_a_whole_stream_of_some_tokens(
    output: int, is_timed: bool, is_sample: bool
) -> None:
    engine = taught()
    before = engine.learner.decode.samples
    engine.serve(output=output, is_timed=is_timed)
    assert engine.learner.decode.samples == before + is_sample


def test_a_replica_that_becomes_slow_is_relearned_within_a_minute_of_traffic() -> None:
    engine = taught(100)
    until = engine.now + 60.0
    while engine.now < until:
        engine.serve(times=2.0)
    assert engine.ttft_s(2000) == pytest.approx(2.0 * (BASE_S + 2000 * TOKEN_S), rel=0.1)
    engine.place.speed.delay_share = 0.0
    assert engine.place.speed.tpot_s(1, 2000) == pytest.approx(2.0 * TPOT_S, rel=0.15)


def test_a_prompt_waits_for_what_is_left_of_those_before_it() -> None:
    engine = taught(100)
    place, learner = engine.place, engine.learner
    Lease(place, 4000)
    learner.dispatched(place, 4000, 0, UNKNOWN, engine.now)
    Lease(place, 1000)
    early = learner.dispatched(place, 1000, 0, UNKNOWN, engine.now)
    assert early.ahead == pytest.approx(4000)
    Lease(place, 1000)
    later = learner.dispatched(place, 1000, 0, UNKNOWN, engine.now + 0.2)
    assert later.ahead == pytest.approx(5000 - 0.2 / place.speed.token_s)
    assert later.ttft_s == pytest.approx(place.speed.ttft_s(later.ahead, 1000, 0, 0))


def test_what_ends_leaves_no_load() -> None:
    engine = taught()
    engine.learner.look(engine.place, engine.now + 1.0)
    assert engine.place.context_tokens == 0
    assert engine.place.load == engine.place.pending_tokens == 0
    lease = Lease(engine.place, 1000)
    sample = engine.learner.dispatched(engine.place, 1000, 500, UNKNOWN, engine.now)
    lease.begun()
    engine.learner.shown(engine.place, sample, 0.1, True, engine.now)
    assert engine.place.context_tokens == 1500


def test_a_fit_without_a_step_does_not_stop_answers() -> None:
    """If prefills explain all samples, the coefficients of a decode step are fitted to 0."""
    engine = taught()
    assert engine.place.speed.is_pace_known
    speed = engine.place.speed
    for _ in range(3):
        lease = Lease(engine.place, 500)
        sample = engine.learner.dispatched(engine.place, 500, 0, UNKNOWN, engine.now)
        speed.step_s = speed.sequence_s = speed.context_s = 0.0
        lease.begun()
        engine.learner.shown(engine.place, sample, 0.1, True, engine.now)
        engine.learner.look(engine.place, engine.now + 1.0)
        speed.step_s = speed.sequence_s = speed.context_s = 0.0
        lease.release()
        engine.learner.ended(engine.place, sample, 20, True, engine.now + 2.0)
        engine.now += 3.0
    assert engine.place.context_tokens == 0


def delayed(engine: Engine, share: float, streams: int) -> None:
    """Answer streams of which this share of the time comes from requests after their dispatch."""
    for _ in range(streams):
        lease = Lease(engine.place, 500)
        sample = engine.learner.dispatched(engine.place, 500, 0, UNKNOWN, engine.now)
        sample.steps_s = (1.0 - share) * TPOT_S
        lease.begun()
        engine.learner.shown(engine.place, sample, 0.1, True, engine.now)
        engine.now += TPOT_S * 19
        lease.release()
        engine.learner.ended(engine.place, sample, 20, True, engine.now)


@pytest.mark.parametrize("share", [0.3, 0.0, -0.5])
def test_the_delay_by_later_requests_is_the_mean_share_of_the_time(share: float) -> None:
    engine = taught()
    delayed(engine, share, 500)
    speed = engine.place.speed
    assert speed.delay_share == pytest.approx(share, abs=0.01)
    steps_s = speed.step_time_s(1, 500)
    assert speed.tpot_s(1, 500) == pytest.approx(steps_s / (1.0 - speed.delay_share))


def test_one_stream_has_little_effect_on_the_delay() -> None:
    engine = taught(100)
    before = engine.place.speed.delay_share
    delayed(engine, -100.0, 1)
    assert engine.place.speed.delay_share == pytest.approx(before, abs=0.03)
    delayed(engine, 0.999, 5000)
    assert engine.place.speed.delay_share == DELAY_MOST


def test_nothing_is_known_of_the_delay_before_the_steps_are_known() -> None:
    engine = Engine()
    for _ in range(LEAST):
        engine.serve()
    assert engine.place.speed.delay_share == 0.0
