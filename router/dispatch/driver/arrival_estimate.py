"""Predicts the time to first token of a streamed request when the request arrives.

If the request is sent at once, the speed learner of the chosen replica makes the prediction
(`SpeedLearner.expected_s`). If the request has to wait, the time from its dispatch to its first
token is predicted as if the dispatch were now, averaged over a few replicas. A waiting request is
sent when its replica is about as loaded as all replicas are while requests wait. The queue adds the
wait (`admission/wait_forecast.py`).

Must never: learn, decide whether a request is served, or examine more than `SAMPLE` replicas.
"""

from __future__ import annotations

from typing import Final

from policies.facts import RequestView
from router.admission.wait_forecast import WaitForecast
from router.core.speed_learner import measures_prefill
from router.core.ttft_estimate import AT_ONCE, ENGINE_FULL, TtftEstimate, TtftEstimates
from router.dispatch.chooser import Chooser
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet
from router.fleet.utilisation import slots_of

SAMPLE: Final = 4


def sent_at_once(
    view: RequestView,
    account: str,
    replica: Replica,
    chooser: Chooser,
    estimates: TtftEstimates,
    now: float,
) -> TtftEstimate | None:
    """Return the estimate of a stream that would be sent to `replica` now; `None`: unknown."""
    slots = slots_of(replica)
    is_prefill = measures_prefill(
        replica, replica.load + 1, -1.0 if slots is None else float(slots)
    )
    uncached = chooser.uncached_at(view, replica)
    cached = max(0, view.prompt_tokens - uncached)
    predicted_s = replica.learned.speeds.expected_s(replica, uncached, cached, now)
    if predicted_s <= 0.0:
        return None
    idle_s = replica.speed.ttft_s(0.0, uncached, cached, 0.0)
    # If the engine is full, the prediction does not include the wait in the engine. So the errors
    # of these predictions are learned separately.
    state = AT_ONCE if is_prefill else ENGINE_FULL
    return estimates.of(view.urgency, state, account, predicted_s, idle_s, now)


def if_it_waits(
    view: RequestView, chooser: Chooser, fleet: Fleet, now: float
) -> WaitForecast | None:
    """Return the forecast that the queue completes if a stream has to wait; `None`: unknown."""
    replicas = fleet.serving.of(view.model, view.allowed)
    if not view.stream or not replicas:
        return None
    uncached = chooser.uncached_at_best(view)
    cached = max(0, view.prompt_tokens - uncached)
    service_s = idle_s = 0.0
    known = 0
    count = len(replicas)
    for number in range(min(SAMPLE, count)):
        replica = replicas[number * count // SAMPLE if count > SAMPLE else number]
        predicted_s = replica.learned.speeds.expected_s(replica, uncached, cached, now)
        if predicted_s > 0.0:
            known += 1
            service_s += predicted_s
            idle_s += replica.speed.ttft_s(0.0, uncached, cached, 0.0)
    if not known:
        return WaitForecast(0.0, 0.0)  # No prediction; the wait can be learned.
    return WaitForecast(service_s / known, idle_s / known)
