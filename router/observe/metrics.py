"""The router's counters, which are updated for each request.

`finished` is called once per request and `attempt` once per attempt. Each call costs a few dict and
list operations. This module does not use prometheus_client: `collector.py` reads the counters at a
scrape of /metrics.

Must never: format text, take a lock, or let input of a client or a replica create an unbounded
number of time series. The kinds of routes are a fixed set. The numbers of models and replicas are
limited; further ones are counted as `other`. Only the event loop's thread changes the counters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from router.core.errors import Reason
from router.core.tally import Tally
from router.core.urgency import CLASSES
from router.intake.routes import KINDS
from router.observe.tenant_usage import TenantUsage

PRIMARY: Final = "primary"
ATTEMPT_KINDS = (PRIMARY, "retry", "hedge", "continuation", "fallback", "other")
OTHER = "other"

# Histogram bounds in seconds, from a cached response on the same machine to a generation of ten
# minutes.
BOUNDS_S: Final[tuple[float, ...]] = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)

# Histogram bounds in seconds per output token, from an engine with speculative decoding to an
# engine that swaps its KV cache.
TPOT_BOUNDS_S: Final[tuple[float, ...]] = (
    *(0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0),
)

# Whether a request met an SLO. UNJUDGED: the SLO does not apply to the request.
MET: Final = 1
MISSED: Final = 0
UNJUDGED: Final = -1

UNCLASSED = "none"  # the class label of inference requests without a priority class
TOKEN_KINDS = ("prompt", "output", "cached")
MODELS_MAX = 100  # maximum number of models with their own label value; others are "other"
REGIONS_MAX = 16  # maximum number of regions with their own label value; others are "other"
# Maximum number of replicas with their own label value: about 9 series of 110 bytes each, so about
# 1 MB in total.
REPLICAS_MAX = 1024
LABEL_CHARS_MAX = 128
# Maximum number of pairs of reason and status for one kind of route. Each reason has one status of
# the router, and engines use a few dozen more.
ENDS_MAX = 2 * len(Reason) + 32
MODEL_ENDS_MAX = 32  # the same for one model


_OK: Final = Reason.OK


def label(text: str) -> str:
    """Return `text` as a label value: at most 128 characters that can be encoded as UTF-8."""
    return text[:LABEL_CHARS_MAX].encode("utf-8", "replace").decode()


def bucket_of(bounds: tuple[float, ...], value: float) -> int:
    """Return the index of the first bound that is not below `value`.

    Returns the number of bounds if all bounds are below `value`. In compiled code, a loop over
    twenty numbers costs less than a call of a binary search.
    """
    bucket = 0
    for bound in bounds:
        if bound >= value:
            break
        bucket += 1
    return bucket


class Histogram:
    """The number of values in each bucket, and the sum of all values.

    `counts` has one item more than `bounds`, for the bucket with the bound +Inf.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS_S) -> None:
        self.bounds = bounds  # upper bounds, inclusive, ascending
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Counts one value. A negative value or NaN counts as 0, so the sum stays valid."""
        if not value >= 0.0:
            value = 0.0
        self.add(bucket_of(self.bounds, value), value)

    def add(self, bucket: int, value: float) -> None:
        """Counts a value that is not negative. `bucket`: the result of `bucket_of`."""
        self.counts[bucket] += 1
        self.sum += value

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yields each upper bound with the number of values at or below it; the last is +Inf."""
        total = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            yield bound, total


class Ends:
    """How requests ended: their numbers, by reason and status."""

    __slots__ = ("_answered", "_most", "_others")

    def __init__(self, most: int) -> None:
        """`most`: above this number of pairs, new statuses are rounded down to hundreds."""
        self._most = most
        # Most requests end with the reason `ok` and the status 200. They are counted apart, because
        # the key of a dictionary costs 600 instructions.
        self._answered = 0
        self._others: dict[tuple[Reason, int], int] = {}

    def count(self, reason: Reason, status: int) -> None:
        if status == 200 and reason is _OK:
            self._answered += 1
            return
        end = (reason, status)
        if end not in self._others and len(self._others) >= self._most:
            end = (reason, status // 100 * 100 if 100 <= status <= 599 else 0)
        self._others[end] = self._others.get(end, 0) + 1

    @property
    def ends(self) -> dict[tuple[Reason, int], int]:
        found = dict(self._others)
        if self._answered:
            found[_OK, 200] = found.get((_OK, 200), 0) + self._answered
        return found


class KindCounts(Ends):
    """The counters of one kind of route."""

    __slots__ = ("bytes_in", "bytes_out", "duration", "ttft")

    def __init__(self) -> None:
        super().__init__(ENDS_MAX)
        self.duration = Histogram()
        self.ttft = Histogram()
        self.bytes_in = 0
        self.bytes_out = 0


class SloCounts:
    """How many requests one SLO applied to, and how many of them met it."""

    __slots__ = ("met", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.met = 0

    def count(self, verdict: int) -> None:
        if verdict != UNJUDGED:
            self.requests += 1
            self.met += verdict


class ClassCounts:
    """The counters of one priority class, for requests that generate text."""

    def __init__(self) -> None:
        self.ttft = Histogram()  # time to first token of streams, in seconds
        self.tpot = Histogram(TPOT_BOUNDS_S)  # seconds per token of streams of at least two tokens
        self.duration = Histogram()  # total seconds of each request that succeeded
        self.wait = Histogram()  # seconds in the queue of each request that waited and was sent
        # The gain is the number of output tokens, each multiplied by its worth. `gain_achieved`
        # counts the tokens that came before their deadlines. `gain_attainable` counts what it would
        # be if all tokens had come before their deadlines.
        self.gain_achieved = 0.0
        self.gain_attainable = 0.0
        # Number of streams whose estimated time to first token was compared with the actual time.
        self.estimates = 0
        # Number of these streams whose actual time was within the interval of the estimate.
        self.estimates_kept = 0
        # The sum of the widths of all these intervals, in seconds.
        self.estimate_width_s = 0.0
        self.slo_ttft = SloCounts()  # streams that met the SLO for the time to first token
        # Streams of at least two tokens that met the SLO for the time per output token.
        self.slo_tpot = SloCounts()
        self.slo_whole = SloCounts()  # requests that met all SLOs that apply to them


class TokenCounts:
    """Numbers of tokens."""

    __slots__ = ("cached", "output", "prompt")

    def __init__(self) -> None:
        self.prompt = 0
        self.output = 0
        self.cached = 0  # tokens that `prompt` counts, too


class ModelEnds(Ends):
    """How the requests for one model ended, and the times to first token of its streams."""

    __slots__ = ("ttft",)

    def __init__(self) -> None:
        super().__init__(MODEL_ENDS_MAX)
        self.ttft = Histogram()


class ModelCounts(TokenCounts):
    """The counters of one model, one region of clients and one priority class."""

    __slots__ = ("of_model", "requests")

    def __init__(self, of_model: ModelEnds) -> None:
        super().__init__()
        self.requests = 0
        self.of_model = of_model  # the counters of the model in all regions and classes


class Reloads:
    """The configuration in force, and the reloads since the start."""

    __slots__ = ("config_hash", "failed", "last_is_ok", "ok")

    def __init__(self) -> None:
        self.config_hash = ""
        self.ok = 0
        self.failed = 0
        self.last_is_ok = True

    def count(self, is_ok: bool, config_hash: str | None = None) -> None:
        """Counts one reload. `config_hash` is the hash of the configuration now in force."""
        self.last_is_ok = is_ok
        if is_ok:
            self.ok += 1
        else:
            self.failed += 1
        if config_hash is not None:
            self.config_hash = config_hash


class Metrics(Tally):
    """All counters that the router updates. Rare events have one attribute each."""

    def __init__(self) -> None:
        super().__init__()
        # Counters of requests and attempts. The counters of all kinds of routes exist from the
        # start, so that counting needs no check.
        self.kinds = {kind: KindCounts() for kind in KINDS}
        self._other_kind = self.kinds[OTHER]
        self.classes = {name: ClassCounts() for name in (*CLASSES, UNCLASSED)}
        self.usage = TenantUsage()
        # Most attempts are primary ones that end well. They are counted apart, by replica, because
        # a key of three parts costs 1,000 instructions.
        self._answered: dict[str, int] = {}
        self._attempts: dict[tuple[str, str, Reason], int] = {}
        # The keys are the model, the region that the client prefers, and the class.
        self.models: dict[tuple[str, str, str], ModelCounts] = {}
        self.model_ends: dict[str, ModelEnds] = {}
        self.named: dict[str, None] = {}  # the models that have their own label value
        # The models that get their own label value with their first request. Any other model gets
        # it with its first successful request, because a client may have invented the name.
        self.configured: frozenset[str] = frozenset()
        self.tokens_by_replica: dict[str, TokenCounts] = {}
        self._regions: set[str] = set()
        self.retries_by_cause: dict[Reason, int] = {}
        self.fallbacks_by_cause: dict[str, int] = {}
        # The sources of further metric families, by the addon that counts them (`families.family`).
        self.added: dict[str, Any] = {}
        self.ejections_by_replica: dict[str, int] = {}
        self.priority_dropped_by_replica: dict[str, int] = {}
        self._replicas: set[str] = set()

        # Counters of connections.
        self.connections_stale = 0  # pooled connections that the replica had already closed

        # Counters of the router's decisions.
        self.policy_errors = 0
        self.retry_budget_exhausted = 0
        self.priority_refused = 0  # error responses because an engine does not support priorities
        self.streams_committed_early = 0

        self.reloads = Reloads()

    def finished(
        self,
        kind: str,
        reason: Reason,
        status: int,
        duration_s: float,
        ttft_s: float | None,
        bytes_in: int,
        bytes_out: int,
        model: str | None = None,
        urgency: str = "",
        streamed: bool = True,
        region: str = "",
    ) -> ModelCounts | None:
        """Counts the end of one request, with any reason. Returns the counters of its model.

        `region`: the region that the client prefers; "": the router has no region.
        """
        counts = self.kinds.get(kind, self._other_kind)
        counts.count(reason, status)
        counts.bytes_in += bytes_in
        counts.bytes_out += bytes_out
        if not duration_s >= 0.0:
            duration_s = 0.0
        bucket = bucket_of(BOUNDS_S, duration_s)
        counts.duration.add(bucket, duration_s)
        classed = self.classes.get(urgency)
        if classed is not None and reason is _OK:
            classed.duration.add(bucket, duration_s)
        of_model: ModelCounts | None = None
        if model is not None:
            of_model = self._of_model(model, region, urgency, reason)
            of_model.requests += 1
            of_model.of_model.count(reason, status)
        if ttft_s is not None:
            if not ttft_s >= 0.0:
                ttft_s = 0.0
            bucket = bucket_of(BOUNDS_S, ttft_s)
            counts.ttft.add(bucket, ttft_s)
            if streamed:
                if classed is not None:
                    classed.ttft.add(bucket, ttft_s)
                if of_model is not None:
                    of_model.of_model.ttft.add(bucket, ttft_s)
        return of_model

    def _of_model(self, model: str, region: str, urgency: str, reason: Reason) -> ModelCounts:
        """Return the counters of a model, for a request that has ended with a reason."""
        found = self.models.get((model, region, urgency))
        if found is None:
            named = self.named
            if (reason is _OK or model in self.configured) and len(named) < MODELS_MAX:
                named[model] = None  # From now on, the model has its own label value.
            found = self._model_counts(model, region, urgency)
        return found

    def counted_tokens(
        self,
        model: str | None,
        region: str,
        urgency: str,
        prompt: int | None,
        output: int | None,
        cached: int | None,
        replica_id: str,
        is_removed: bool = False,
        counts: ModelCounts | None = None,
    ) -> None:
        """Counts the tokens of one request. Must be called after `finished`.

        `replica_id`: the replica that answered. `is_removed`: see `attempt`. `counts`: the result
        of `finished`, which saves a search.
        """
        if counts is None:
            counts = self._model_counts(OTHER if model is None else model, region, urgency)
        of_replica = self.tokens_by_replica.get(replica_id)
        if of_replica is None:
            name = self._name_of(replica_id, is_removed)
            of_replica = self.tokens_by_replica.setdefault(name, TokenCounts())
        if prompt is not None:
            counts.prompt += prompt
            of_replica.prompt += prompt
        if output is not None:
            counts.output += output
            of_replica.output += output
        if cached is not None:
            counts.cached += cached
            of_replica.cached += cached

    def _model_counts(self, model: str, region: str, urgency: str) -> ModelCounts:
        """Return the counters of a model without a key of its own, or of a new key."""
        if model not in self.named:
            model = OTHER
        if region not in self._regions:
            if len(self._regions) < REGIONS_MAX:
                self._regions.add(region)
            else:
                region = OTHER
        key = (model, region, urgency)
        counts = self.models.get(key)
        if counts is None:
            ends = self.model_ends.setdefault(model, ModelEnds())
            counts = self.models[key] = ModelCounts(ends)
        return counts

    def waited(self, urgency: str, wait_s: float) -> None:
        """Records that a request of a class was sent after it waited `wait_s` seconds in the queue.

        A request that is queued again after a dispatch has several waits.
        """
        classed = self.classes.get(urgency or "normal")
        if classed is not None:
            classed.wait.observe(wait_s)

    def paced(self, urgency: str, tpot_s: float) -> None:
        """Records that a stream of a class took `tpot_s` seconds per token after the first."""
        classed = self.classes.get(urgency)
        if classed is not None:
            classed.tpot.observe(tpot_s)

    def judged(
        self, urgency: str, achieved: float, attainable: float, ttft: int, tpot: int, whole: int
    ) -> None:
        """Counts the gain of a request of a class, and whether the request met its SLOs.

        `ttft`, `tpot` and `whole` are MET, MISSED or UNJUDGED.
        """
        classed = self.classes.get(urgency)
        if classed is not None:
            classed.gain_achieved += achieved
            classed.gain_attainable += attainable
            classed.slo_ttft.count(ttft)
            classed.slo_tpot.count(tpot)
            classed.slo_whole.count(whole)

    def estimated(self, urgency: str, is_kept: bool, width_s: float) -> None:
        """Counts an estimated time to first token of a class, after the actual time is known.

        `is_kept`: the actual time was within the estimate's interval. `width_s`: the width of the
        interval in seconds.
        """
        classed = self.classes.get(urgency)
        if classed is not None:
            classed.estimates += 1
            if is_kept:
                classed.estimates_kept += 1
            classed.estimate_width_s += width_s

    def attempt(self, replica_id: str, kind: str, reason: Reason, is_removed: bool = False) -> None:
        """Counts the end of one attempt. `kind` is one of ATTEMPT_KINDS.

        `is_removed`: whether the replica has left the fleet. Such a replica gets no new label
        value, because no later call of `forget_replica` would free the value. The attempt is
        counted for the label value `other`.
        """
        if reason is _OK and kind == PRIMARY:
            answered = self._answered
            count = answered.get(replica_id, 0)
            if not count:
                replica_id = self._name_of(replica_id, is_removed)
                count = answered.get(replica_id, 0)
            answered[replica_id] = count + 1
            return
        try:
            self._attempts[replica_id, kind, reason] += 1
        except KeyError:
            if kind not in ATTEMPT_KINDS:
                kind = OTHER
            key = (self._name_of(replica_id, is_removed), kind, reason)
            self._attempts[key] = self._attempts.get(key, 0) + 1

    @property
    def attempts(self) -> dict[tuple[str, str, Reason], int]:
        """The number of attempts that have ended, by replica, kind and reason of the end."""
        answered = {(name, PRIMARY, _OK): count for name, count in self._answered.items()}
        return self._attempts | answered

    def retries(self, cause: Reason) -> None:
        """Counts one retry. `cause` is the reason why the attempt before it ended."""
        self.retries_by_cause[cause] = self.retries_by_cause.get(cause, 0) + 1

    def fallback(self, cause: str) -> None:
        """Counts a request that goes to a fallback. `cause`: the condition in the configuration."""
        self.fallbacks_by_cause[cause] = self.fallbacks_by_cause.get(cause, 0) + 1

    def ejections(self, replica_id: str) -> None:
        """Counts one ejection of a replica because of failed requests."""
        replica_id = self._known_replica(replica_id)
        self.ejections_by_replica[replica_id] = self.ejections_by_replica.get(replica_id, 0) + 1

    def priority_dropped(self, replica_id: str) -> bool:
        """Counts an attempt that was sent without its priority.

        Returns whether it is the first such attempt at the replica.
        """
        replica_id = self._known_replica(replica_id)
        count = self.priority_dropped_by_replica.get(replica_id, 0)
        self.priority_dropped_by_replica[replica_id] = count + 1
        return not count

    def forget_replica(self, replica_id: str) -> None:
        """Removes the counters of a replica that left the fleet, to make room for other labels."""
        if replica_id not in self._replicas:
            return
        self._replicas.remove(replica_id)
        self.ejections_by_replica.pop(replica_id, None)
        self.priority_dropped_by_replica.pop(replica_id, None)
        self.tokens_by_replica.pop(replica_id, None)
        self._answered.pop(replica_id, None)
        for key in [key for key in self._attempts if key[0] == replica_id]:
            del self._attempts[key]

    def _name_of(self, replica_id: str, is_removed: bool) -> str:
        """Return the label value for a replica. `is_removed`: see `attempt`."""
        if is_removed and replica_id not in self._replicas:
            return OTHER
        return self._known_replica(replica_id)

    def _known_replica(self, replica_id: str) -> str:
        """Return the label value for a replica: its ID, or `other` above REPLICAS_MAX replicas."""
        if replica_id in self._replicas:
            return replica_id
        if len(self._replicas) >= REPLICAS_MAX:
            return OTHER
        self._replicas.add(replica_id)
        return replica_id
