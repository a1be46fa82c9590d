"""The learned times to first content of all models and replicas of one router.

The times are learned from all requests, hedgeable or not, because requests without a copy show the
whole tail of the distribution. Before there are answers, a model's times are assumed
(`ttft_prior.py`). The prediction for a replica is its model's prediction (`ttfts.py`) times a
factor of the replica (`speed.py`), and the round-trip time to it. The learned times do not contain
the round-trip time, because replicas of all regions share them.

Must never: read a clock, decide whether a copy is sent, or keep data of removed replicas or of more
than `MODELS_MAX` models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from router.dispatch.driver.attempt_state import Attempt
from router.dispatch.hedging.speed import Speed, Speeds
from router.dispatch.hedging.ttft_prior import STREAMS
from router.dispatch.hedging.ttfts import Ttfts
from router.fleet.replica import Replica

# Maximum number of models for which times are learned from streams. The same maximum applies again
# to models for which times are learned from whole answers.
MODELS_MAX: Final = 256
# Seconds without a request after which the learned times of a model may be replaced by those of
# another model.
_IDLE_S: Final = 60.0
_LEAST_S: Final = 1e-4  # The shortest possible time to first content, in seconds.
# Number of answers from which on the usual time is known. Before that, the fitted line of a model
# that is ten times as quick as assumed may still be the assumed one.
_KNOWN: Final = 2


class LearnedTimes:
    """The learned times of one router. Times are monotonic seconds.

    `plan`: a function that sets the hedging plan of a model's new entry.
    """

    def __init__(self, plan: Callable[[Ttfts], None]) -> None:
        self._plan = plan
        self._streams: dict[str, Ttfts] = {}
        self._wholes: dict[str, Ttfts] = {}
        self._speeds: dict[Replica, Speeds] = {}

    def of(self, model: str | None, is_streamed: bool, now: float) -> Ttfts:
        """Return the learned times of a model; the entry is created if necessary."""
        known = self._streams if is_streamed else self._wholes
        ttfts = known.get(model or "")
        return ttfts if ttfts is not None else self._new(known, model or "", now)

    def _new(self, known: dict[str, Ttfts], model: str, now: float) -> Ttfts:
        """Create the entry for a model's first request.

        Clients can invent model names. If the table of models is full, further models share one
        entry.
        """
        if len(known) >= MODELS_MAX:
            for name in [n for n, t in known.items() if now - t.used_at > _IDLE_S]:
                del known[name]
        if len(known) >= MODELS_MAX:
            model = ""
            if model in known:
                return known[model]
        ttfts = known[model] = Ttfts(now, known is self._streams)
        self._plan(ttfts)
        return ttfts

    def entries(self) -> list[tuple[str, bool, Ttfts]]:
        """Return for each model: its name, whether the entry is for streams, and the learned times.

        The name is "" for requests that name no model.
        """
        found = [(name, True, ttfts) for name, ttfts in self._streams.items()]
        return found + [(name, False, ttfts) for name, ttfts in self._wholes.items()]

    def outdate(self) -> None:
        """Request a new hedging plan for every model, because the policy has changed."""
        for ttfts in (*self._streams.values(), *self._wholes.values()):
            ttfts.outdate()

    def fleet_changed(self) -> None:
        """Forget the speed factors of replicas that were removed."""
        for replica in [r for r in self._speeds if r.removed]:
            del self._speeds[replica]

    # -- predictions --------------------------------------------------------------------------

    def predict(self, ttfts: Ttfts, attempt: Attempt) -> float:
        """Return the predicted seconds from an attempt's dispatch to its first content.

        The round-trip time to the replica is included.
        """
        return self.predict_at(ttfts, attempt.at, _ahead(attempt))

    def predict_at(self, ttfts: Ttfts, replica: Replica, tokens: int) -> float:
        """Return the prediction of `predict` for a replica. `tokens`: see `Lateness.ahead`."""
        factor = self.factor(replica, ttfts.is_streamed)
        return ttfts.predict(tokens, factor) + replica.speed.rtt_s

    def usual_s(
        self, model: str | None, attempt: Attempt, is_streamed: bool
    ) -> tuple[float, float]:
        """Return the usual seconds to the first token and to the end of an answer; 0: unknown.

        The tokens of requests that wait before the attempt are not included. The second value is 0
        for a stream.
        """
        name, replica, tokens = model or "", attempt.at, attempt.tokens
        whole_s = 0.0
        if not is_streamed:
            ttfts = self._wholes.get(name)
            if ttfts is not None and ttfts.answers >= _KNOWN:
                whole_s = self._usual_s(ttfts, replica, tokens)
        ttfts = self._streams.get(name)
        if ttfts is not None and ttfts.answers >= _KNOWN:
            return self._usual_s(ttfts, replica, tokens), whole_s
        # Whole answers alone do not show the time to the first token, so it stays the assumed one.
        return (STREAMS.base_s + STREAMS.token_s * tokens if whole_s else 0.0), whole_s

    def _usual_s(self, ttfts: Ttfts, replica: Replica, tokens: int) -> float:
        """Return the predicted seconds, but at most the usual time of the replica's own answers.

        While a replica hangs, its factor grows with each attempt that is cancelled there. The
        replica may have hung since it joined, so the factor does not count before its first answer.
        """
        progress, line_s = replica.progress, ttfts.predict(tokens, 1.0)
        own_s = progress.whole_s
        if ttfts.is_streamed:
            own_s = progress.first_s * max(1.0, tokens / max(progress.first_tokens, 1.0))
        if own_s > 0.0:
            factor = self.factor(replica, ttfts.is_streamed)
            line_s = min(line_s * factor + replica.speed.rtt_s, own_s)
        return line_s

    def factor(self, replica: Replica, is_streamed: bool) -> float:
        """Return the speed factor of a replica; 1.0 if nothing was learned."""
        speeds = self._speeds.get(replica)
        if speeds is None:
            return 1.0
        return speeds.streams.factor if is_streamed else speeds.wholes.factor

    def computed_tokens(self, model: str | None, attempt: Attempt, now: float) -> int:
        """Estimate the prompt tokens that an engine has computed for an attempt without content.

        The estimate assumes that the engine works in order, at the replica's usual speed. If no
        speed is known, all prompt tokens count as computed.
        """
        if not attempt.is_sent:
            return 0
        tokens = attempt.tokens
        ttfts = self._streams.get(model or "")
        if ttfts is None or ttfts.is_cold:
            return tokens
        predicted_s = self.predict(ttfts, attempt)
        waited_s = now - attempt.began
        if waited_s >= predicted_s:
            return tokens
        left = int(_ahead(attempt) * (1.0 - waited_s / predicted_s))
        return max(0, tokens - left)

    # -- the work of each replica ---------------------------------------------------------------

    def dispatched(self, model: str | None, attempt: Attempt, now: float) -> None:
        """Add an attempt's time to first token to the recent work of its replica."""
        ttfts = self._streams.get(model or "")
        if ttfts is None:
            line_s = STREAMS.base_s + STREAMS.token_s * attempt.tokens
        else:
            line_s = ttfts.predict(attempt.tokens, 1.0)
        self._of(attempt.at).work.add(line_s, now)

    def busy_share(self, replica: Replica, now: float) -> float:
        """Return the share of its time that the replica needed lately for first tokens."""
        speeds = self._speeds.get(replica)
        return 0.0 if speeds is None else speeds.work.share(now)

    # -- learning -----------------------------------------------------------------------------

    def shown(self, ttfts: Ttfts, attempt: Attempt, now: float) -> None:
        """Learn from an attempt that shows its first content now."""
        took_s = _without_network(now - attempt.began, attempt.at)
        speed = self._speed(attempt.at, ttfts.is_streamed)
        ahead = _ahead(attempt)
        line_s = ttfts.predict(ahead, 1.0)
        ttfts.shown(ahead, took_s, speed.factor, now)
        if not ttfts.is_cold:
            speed.shown(took_s, line_s, now)

    def cut(self, ttfts: Ttfts, attempt: Attempt, now: float) -> None:
        """Learn from an attempt that ends now, before it showed content."""
        late = attempt.lateness
        if late is None or not attempt.is_timed:
            return
        waited_s = _without_network(now - attempt.began, attempt.at)
        speed = self._speed(attempt.at, ttfts.is_streamed)
        line_s = ttfts.predict(late.ahead, 1.0)
        ttfts.cut(late.ahead, waited_s, speed.factor, late.is_silent, now)
        if not (ttfts.is_cold or late.is_silent):
            speed.cut(waited_s, line_s, now)

    def _speed(self, replica: Replica, is_streamed: bool) -> Speed:
        speeds = self._of(replica)
        return speeds.streams if is_streamed else speeds.wholes

    def _of(self, replica: Replica) -> Speeds:
        speeds = self._speeds.get(replica)
        if speeds is None:
            speeds = Speeds()
            if not replica.removed:
                self._speeds[replica] = speeds
        return speeds


def _ahead(attempt: Attempt) -> int:
    late = attempt.lateness
    assert late is not None, "the hedger was not told of the attempt"
    return late.ahead


def _without_network(seconds: float, replica: Replica) -> float:
    """Return a time to first content without the round-trip time to the replica."""
    return max(_LEAST_S, seconds - replica.speed.rtt_s)
