"""Learns the speed of one replica's engine from the streams that it answers.

`EngineSpeed` has the coefficients, which policies read. This class updates them:

- A first token is a sample of the prefill: the prompts ahead of it, its own uncached and cached
  tokens, and the sequences that decoded at its dispatch.
- A complete stream with a known number of tokens is a sample of the decode step: its mean time per
  token, the mean numbers of sequences and context tokens meanwhile, and the prompt tokens that were
  prefilled per step.
- It is also a sample of the delay by later requests: the share of its time beyond the steps that
  were predicted from its batch at the dispatch. The mean of these shares is that of the speeds, so
  the predicted times have no bias relative to the actual ones.

These are not samples:

- Answers that are not streamed: they show nothing before their last token.
- A first token of a request that had to wait in the engine for a free slot or for space in the KV
  cache, because its wait was not a prefill. The same applies while requests of other clients wait
  there: their prompts are unknown.
- A stream whose client did not read all the time.

An attempt that ended without content took longer than it waited. So it is a sample only if it had
waited for longer than predicted; otherwise it would teach that the replica is fast.

The predictions made at the dispatch are compared with the actual times. Assumed coefficients are
not compared.

Must never: do I/O, read a clock, or keep data of an ended attempt.
"""

from __future__ import annotations

from typing import Final

from policies.engine_speed import (
    ATTENTION_S,
    BASE_S,
    CONTEXT_S,
    RUNNING_S,
    SEQUENCE_S,
    STEP_S,
    TOKEN_S,
    EngineSpeed,
)
from router.core.decode_load import DecodeLoad
from router.core.prediction_error import PredictionError
from router.core.relative_fit import RelativeFit
from router.core.replica_load import ReplicaLoad

LEAST: Final = 8  # Number of samples from which on coefficients count as learned.
OUTPUT_LEAST: Final = 8  # Fewer output tokens are no sample: single gaps differ too much.
DELAY_WEIGHT: Final = 0.01  # Weight of a new stream in `delay_share`.
DELAY_FIRST: Final = 4  # Number of streams that the first value, no delay, counts for.
DELAY_MOST: Final = 0.8  # The largest `delay_share`.
DELAY_LEAST: Final = -1.0  # The least share of one stream: it took half of the predicted time.
# Share of the KV cache from which on a request may have to wait for space.
KV_FULL: Final = 0.97


class SpeedSample:
    """The facts of one streamed attempt: at its dispatch, and from its first token on."""

    __slots__ = (
        "ahead",
        "began_at",
        "cached",
        "context_s",
        "is_prefill",
        "prefilled",
        "running",
        "sequence_s",
        "steps_s",
        "tpot_s",
        "ttft_s",
        "uncached",
    )

    def __init__(
        self, ahead: float, uncached: int, cached: int, running: int, is_prefill: bool
    ) -> None:
        self.ahead = ahead  # Tokens of other prompts that were to be prefilled first.
        self.uncached = uncached  # The prompt's own tokens, as estimated at the dispatch.
        self.cached = cached
        self.running = running  # Sequences that decoded.
        self.is_prefill = is_prefill  # Whether its first token measures a prefill.
        self.ttft_s = 0.0  # The predicted seconds to the first token; 0: nothing was known.
        self.tpot_s = 0.0  # The predicted seconds per output token; 0: nothing was known.
        self.steps_s = 0.0  # The same if the batch stays and no prompt arrives.
        self.began_at = -1.0  # Time of the first token in monotonic seconds; below 0: none yet.
        # The sums of `DecodeLoad` at the first token.
        self.sequence_s = 0.0
        self.context_s = 0.0
        self.prefilled = 0

    def features(self) -> list[float]:
        """The features of the prefill; see `EngineSpeed.ttft_s`."""
        uncached = float(self.uncached)
        attention = uncached * (self.cached + 0.5 * uncached)
        return [1.0, self.ahead + uncached, attention, float(self.running)]


class SpeedLearner:
    """The learned speed of one replica. Times are monotonic seconds."""

    __slots__ = (
        "_delayed",
        "_load",
        "decode",
        "prefill",
        "speed",
        "step_error",
        "tpot_error",
        "ttft_error",
    )

    def __init__(self, speed: EngineSpeed) -> None:
        self.speed = speed
        self.prefill = RelativeFit([BASE_S, TOKEN_S, ATTENTION_S, RUNNING_S])
        self.decode = RelativeFit([STEP_S, SEQUENCE_S, CONTEXT_S, TOKEN_S])
        self.ttft_error = PredictionError()
        self.tpot_error = PredictionError()
        # The error of the time per token if the load until the stream's end had been known. The
        # rest of `tpot_error` comes from requests that arrived later.
        self.step_error = PredictionError()
        self._load = DecodeLoad()
        self._delayed = 0  # Number of streams that `delay_share` was learned from.

    def start(self, prefill: list[float], decode: list[float]) -> None:
        """Begin with the coefficients of other replicas of the model; [] for unknown ones.

        Coefficients that were learned from this replica's own answers stay.
        """
        if prefill and not self.prefill.samples:
            self.prefill.start(prefill)
            self._renew_prefill()
            self.speed.is_known = True
        if decode and not self.decode.samples:
            self.decode.start(decode)
            self._renew_decode()
            self.speed.is_pace_known = True

    def dispatched(
        self, place: ReplicaLoad, uncached: int, cached: int, slots: float, now: float
    ) -> SpeedSample:
        """Return the facts and predictions of a streamed attempt that has just got its lease.

        `uncached`, `cached`: estimated tokens of its prompt. `slots`: requests that the engine runs
        at once; below 0: unknown.
        """
        speed = self.speed
        pending = place.pending_tokens - uncached
        if pending <= 0:
            pending = 0
            speed.serves_since = now
        running = max(0, place.load - place.waiting)
        ahead = speed.tokens_left(pending, now)
        is_prefill = measures_prefill(place, place.load, slots)
        sample = SpeedSample(ahead, uncached, cached, running, is_prefill)
        if speed.is_known:
            sample.ttft_s = speed.ttft_s(ahead, uncached, cached, running)
        if self.decode.samples >= LEAST:
            context = place.context_tokens + pending + uncached + cached
            sample.steps_s = speed.step_time_s(place.load, context)
            sample.tpot_s = speed.tpot_s(place.load, context)
        return sample

    def expected_s(self, place: ReplicaLoad, uncached: int, cached: int, now: float) -> float:
        """Predict the seconds to the first token of an attempt that would get its lease now.

        The result is the prediction that `dispatched` makes. 0: nothing is known.
        """
        speed = self.speed
        if not speed.is_known:
            return 0.0
        ahead = speed.tokens_left(place.pending_tokens, now)
        return speed.ttft_s(ahead, uncached, cached, max(0, place.load - place.waiting))

    def shown(
        self, place: ReplicaLoad, sample: SpeedSample, ttft_s: float, is_timed: bool, now: float
    ) -> None:
        """Learn from the first token of a stream. `is_timed`: the client has read all the time."""
        self.look(place, now)
        load = self._load
        load.begins(sample.uncached + sample.cached, sample.uncached, now)
        self.look(place, now)
        sample.began_at = now
        sample.sequence_s = load.sequence_s
        sample.context_s = load.context_s
        sample.prefilled = load.prefilled
        self.speed.serves_since = now
        if is_timed and sample.is_prefill:
            if sample.ttft_s > 0.0:
                self.ttft_error.add(sample.ttft_s, ttft_s)
            self.prefill.learn(sample.features(), ttft_s, now)
            self._renew_prefill()

    def cut(self, sample: SpeedSample, waited_s: float, now: float) -> None:
        """Learn from an attempt that ended after `waited_s` without content."""
        if sample.is_prefill:
            self.prefill.learn_longer(sample.features(), waited_s, now)
            self._renew_prefill()

    def ended(
        self, place: ReplicaLoad, sample: SpeedSample, output: int, is_timed: bool, now: float
    ) -> None:
        """Learn from the end of an attempt, whatever its result.

        Call this method once for each attempt, after its lease was released. `output`: the exact
        number of output tokens of a complete stream; 0: unknown. `is_timed`: see `shown`.
        """
        began = sample.began_at
        if began < 0.0:
            return
        self.look(place, now)
        load = self._load
        load.ends(sample.uncached + sample.cached, began)
        self.look(place, now)
        lasted_s = now - began
        if output < OUTPUT_LEAST or not is_timed or lasted_s <= 0.0:
            return
        steps = float(output - 1)
        tpot_s = lasted_s / steps
        if sample.tpot_s > 0.0:
            self.tpot_error.add(sample.tpot_s, tpot_s)
            self._learn_delay(1.0 - sample.steps_s / tpot_s)
        features = [
            1.0,
            max(1.0, (load.sequence_s - sample.sequence_s) / lasted_s),
            (load.context_s - sample.context_s) / lasted_s,
            (load.prefilled - sample.prefilled) / steps,
        ]
        if self.decode.samples >= LEAST:
            self.step_error.add(self.decode.predict(features), tpot_s)
        self.decode.learn(features, tpot_s, now)
        self._renew_decode()

    def look(self, place: ReplicaLoad, now: float) -> None:
        """Update the replica's decode load. Call this method at each poll, too."""
        speed, load = self.speed, self._load
        load.look(place, speed.tpot_s(load.sequences, load.context), now)
        place.context_tokens = int(load.context)

    def _learn_delay(self, share: float) -> None:
        """Learn the share of one stream's time that came from requests after its dispatch."""
        self._delayed += 1
        weight = max(DELAY_WEIGHT, 1.0 / (DELAY_FIRST + self._delayed))
        speed = self.speed
        off = max(DELAY_LEAST, share) - speed.delay_share
        speed.delay_share = min(DELAY_MOST, speed.delay_share + weight * off)

    def _renew_prefill(self) -> None:
        fit, speed = self.prefill, self.speed
        speed.base_s = fit.coefficient(0)
        speed.token_s = fit.coefficient(1)
        speed.attention_s = fit.coefficient(2)
        speed.running_s = fit.coefficient(3)
        if fit.samples >= LEAST:
            speed.is_known = True

    def _renew_decode(self) -> None:
        fit, speed = self.decode, self.speed
        speed.step_s = fit.coefficient(0)
        speed.sequence_s = fit.coefficient(1)
        speed.context_s = fit.coefficient(2)
        if fit.samples >= LEAST:
            speed.is_pace_known = True


def measures_prefill(place: ReplicaLoad, load: int, slots: float) -> bool:
    """Whether a request is prefilled without a wait in the engine for a slot or for KV cache.

    `load`: the replica's load with the request. `slots`: see `SpeedLearner.dispatched`.
    """
    usage = place.kv_usage
    return (
        place.foreign_waiting == 0
        and (slots < 0.0 or load <= slots)
        and (usage is None or usage < KV_FULL)
    )
