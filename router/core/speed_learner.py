"""Learns the speed of one replica's engine from the streams that it answers.

`EngineSpeed` has the coefficients, which routing policies read. `SpeedLearner` updates them from
these samples:

- The first token of a stream is a sample of the prefill. Its features are the prompt tokens that
  had to be prefilled before, the stream's own uncached and cached prompt tokens, and the number of
  sequences that decoded when the request was sent. The time of the sample does not include the
  measured round-trip time to the replica.
- A complete stream with a known number of tokens is a sample of the decode step. It has the mean
  time per token, the mean numbers of sequences and context tokens meanwhile, and the prompt tokens
  that were prefilled per step.
- A complete stream is also a sample of the delay by later requests: the fraction of its time per
  token beyond the time that was predicted from the batch when the request was sent. The mean of
  these fractions is learned, so that predicted times have no bias relative to the actual times.

These are not samples:

- Answers that are not streamed, because they show nothing before their last token.
- The first token of a request that had to wait in the engine for a free slot or for space in the KV
  cache, because the wait was not prefill. The same applies while requests of other clients wait at
  the engine, because their prompts are unknown.
- A stream whose client did not read all the time.

An attempt that ended without content would have taken longer than it had waited. So it is a sample
only if it had waited for longer than predicted; otherwise the learned speed would become too high.

The predictions made at the dispatch are compared with the actual times. Assumed coefficients are
not compared.

Must never: do I/O, read a clock, keep data of an ended attempt, or cost anything per token.
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
from router.core.prediction_error import PredictionError
from router.core.relative_fit import RelativeFit
from router.core.replica_load import ReplicaLoad

LEAST: Final = 8  # Coefficients count as learned after this many samples.
LEAST_S: Final = 1e-4  # The shortest time that an engine can need for the first token, in seconds.
# A stream with fewer output tokens is no sample, because the gaps between tokens differ too much.
OUTPUT_LEAST: Final = 8
DELAY_WEIGHT: Final = 0.01  # Weight of a new stream in the mean `delay_share`.
DELAY_FIRST: Final = 4  # The first value of `delay_share`, 0, has the weight of this many streams.
DELAY_MOST: Final = 0.8  # The largest `delay_share`.
# The smallest fraction that one stream contributes: the stream took half of the predicted time.
DELAY_LEAST: Final = -1.0
# Fraction of the KV cache in use from which on a request may have to wait for space.
KV_FULL: Final = 0.97


class DecodeLoad:
    """The decode load of one replica: how many sequences decode, and their context tokens.

    Times are monotonic seconds. A stream's mean time per token depends on all sequences that
    decoded at the same time, and on the prompts that were prefilled meanwhile. So the number of
    sequences and the number of context tokens are integrated over time. The difference between two
    readings of an integral, divided by the time between them, is the mean. The integrals are
    updated when a stream of this router begins or ends and at each poll. Between these times both
    numbers count as constant.

    The contexts of this router's own streams are their prompts and an estimate of the tokens
    generated since. Sequences of other clients, and answers that are not streamed, count with the
    mean context of the router's own streams. If the router has no stream at the replica, the
    context is computed from the KV cache usage that the engine reports.
    """

    __slots__ = (
        "_at",
        "_began_sum",
        "_prompts",
        "_streams",
        "context",
        "context_s",
        "prefilled",
        "sequence_s",
        "sequences",
    )

    def __init__(self) -> None:
        self.sequences = 0.0  # Number of decoding sequences since the last update.
        self.context = 0.0  # Number of context tokens of these sequences.
        self.sequence_s = 0.0  # The integral of `sequences` over time.
        self.context_s = 0.0  # The integral of `context` over time.
        # Uncached tokens of the prompts of all own streams that got a first token.
        self.prefilled = 0
        self._at = 0.0  # Time of the last update.
        self._streams = 0  # Number of this router's streams that decode.
        self._prompts = 0  # Number of prompt tokens of these streams.
        self._began_sum = 0.0  # Sum of the times of the first tokens of these streams.

    def begins(self, prompt_tokens: int, uncached: int, now: float) -> None:
        """Add a stream of this router that got its first token. Call `look` before and after."""
        self._streams += 1
        self._prompts += prompt_tokens
        self._began_sum += now
        self.prefilled += uncached

    def ends(self, prompt_tokens: int, began: float) -> None:
        """Remove a stream of this router. Call `look` before and after."""
        self._streams -= 1
        self._prompts -= prompt_tokens
        self._began_sum -= began
        if not self._streams:
            self._began_sum = 0.0  # Rounding errors would otherwise accumulate.

    def look(self, place: ReplicaLoad, token_s: float, now: float) -> None:
        """Update the integrals up to `now`, then the present numbers from the replica's counts.

        `token_s` is an estimate of the seconds per token of a stream.
        """
        elapsed_s = now - self._at
        if elapsed_s > 0.0:
            self.sequence_s += self.sequences * elapsed_s
            self.context_s += self.context * elapsed_s
            self._at = now
        running = float(max(0, place.load - place.waiting))
        self.sequences = running
        if self._streams > 0:
            generated = max(0.0, self._streams * now - self._began_sum) / token_s
            self.context = (self._prompts + generated) / self._streams * running
        elif running > 0.0 and place.kv_usage is not None and place.kv_tokens is not None:
            self.context = place.kv_usage * place.kv_tokens
        else:
            self.context = 0.0


class SpeedSample:
    """The data of one streamed attempt, from its dispatch and from its first token."""

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
        self.ahead = ahead  # Number of tokens of other prompts that had to be prefilled first.
        # The numbers of uncached and cached prompt tokens, as estimated at the dispatch.
        self.uncached = uncached
        self.cached = cached
        self.running = running  # Number of sequences that decoded at the dispatch.
        self.is_prefill = is_prefill  # Whether the time to first token measures only prefill.
        self.ttft_s = 0.0  # The predicted seconds to the first token; 0: nothing was known.
        self.tpot_s = 0.0  # The predicted seconds per output token; 0: nothing was known.
        # The predicted seconds per output token if the batch does not change; 0: nothing was known.
        self.steps_s = 0.0
        self.began_at = -1.0  # Time of the first token in monotonic seconds; below 0: none yet.
        # The fields of `DecodeLoad` with the same names, at the first token.
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
        # The error that predictions of the time per token would have if the load until the stream's
        # end had been known. The rest of `tpot_error` comes from requests that arrived later.
        self.step_error = PredictionError()
        self._load = DecodeLoad()
        self._delayed = 0  # Number of streams that `delay_share` was learned from.

    def start(self, prefill: list[float], decode: list[float]) -> None:
        """Begin with coefficients that were learned from other replicas of the same model.

        An empty list means unknown coefficients. Coefficients that were learned from this replica's
        own answers are not replaced.
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
        """Return the data and predictions of a streamed attempt that has just got its lease.

        `uncached` and `cached` are the estimated numbers of its prompt tokens. `slots` is the
        number of requests that the engine can run at once; below 0: unknown.
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

        The result is the prediction that `dispatched` would make. 0: nothing is known.
        """
        speed = self.speed
        if not speed.is_known:
            return 0.0
        ahead = speed.tokens_left(place.pending_tokens, now)
        return speed.ttft_s(ahead, uncached, cached, max(0, place.load - place.waiting))

    def shown(
        self, place: ReplicaLoad, sample: SpeedSample, ttft_s: float, is_timed: bool, now: float
    ) -> None:
        """Learn from the first token of a stream.

        `is_timed` is False if the client did not read all the time, which delays the stream.
        """
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
            self.prefill.learn(sample.features(), self._without_network(ttft_s), now)
            self._renew_prefill()

    def cut(self, sample: SpeedSample, waited_s: float, now: float) -> None:
        """Learn from an attempt that ended without content after `waited_s` seconds."""
        if sample.is_prefill:
            self.prefill.learn_longer(sample.features(), self._without_network(waited_s), now)
            self._renew_prefill()

    def _without_network(self, seconds: float) -> float:
        """Return a time to first token without the round-trip time to the replica."""
        return max(LEAST_S, seconds - self.speed.rtt_s)

    def ended(
        self, place: ReplicaLoad, sample: SpeedSample, output: int, is_timed: bool, now: float
    ) -> None:
        """Learn from the end of an attempt, whatever its result.

        Call this method once for each attempt, after its lease was released. `output` is the exact
        number of output tokens of a complete stream; 0: unknown. For `is_timed` see `shown`.
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
        """Update the replica's decode load. This method must also be called at each poll."""
        speed, load = self.speed, self._load
        load.look(place, speed.tpot_s(load.sequences, load.context), now)
        place.context_tokens = int(load.context)

    def _learn_delay(self, share: float) -> None:
        """Learn the fraction of one stream's time that requests after its dispatch caused."""
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

    `load` is the replica's load including the request. For `slots` see `SpeedLearner.dispatched`.
    """
    usage = place.kv_usage
    return (
        place.foreign_waiting == 0
        and (slots < 0.0 or load <= slots)
        and (usage is None or usage < KV_FULL)
    )
