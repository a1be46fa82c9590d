"""Reports the learned speed of engines, and the errors of the predictions that it gives.

The error of a model is the mean over its replicas, weighted by their numbers of recent predictions.
The errors are computed when they are read. A replica has no error before one of its predictions was
compared with the actual time.

Must never: make a request slower.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from router.core.prediction_error import SMOOTHING, PredictionError
from router.fleet.listed import ANY
from router.fleet.replica import Replica
from router.observe.metrics import MODELS_MAX, OTHER

# The value of the model label for replicas that list no models.
UNNAMED: Final = ""
_RECENT: Final = 1.0 / SMOOTHING  # Number of latest predictions that an average mostly covers.
Labelled = dict[tuple[str, ...], float]


def errors(replicas: Iterable[Replica]) -> Labelled:
    """Return the mean absolute error by model and kind, as a share of the actual time."""
    return _by_model(replicas, is_signed=False)


def biases(replicas: Iterable[Replica]) -> Labelled:
    """Return the mean signed error by model and kind, as a share of the actual time."""
    return _by_model(replicas, is_signed=True)


def _by_model(replicas: Iterable[Replica], *, is_signed: bool) -> Labelled:
    sums: dict[tuple[str, ...], list[float]] = {}
    names: set[str] = set()
    for replica in replicas:
        for kind, error in _kinds(replica):
            if not error.count:
                continue
            weight = min(float(error.count), _RECENT)
            value = error.signed if is_signed else error.absolute
            for name in _names(replica):
                if name not in names and len(names) >= MODELS_MAX:
                    name = OTHER
                names.add(name)
                total = sums.setdefault((name, kind), [0.0, 0.0])
                total[0] += weight * value
                total[1] += weight
    return {key: total / weight for key, (total, weight) in sums.items()}


def _kinds(replica: Replica) -> tuple[tuple[str, PredictionError], ...]:
    learner = replica.learned.speeds
    return (
        ("ttft", learner.ttft_error),
        ("tpot", learner.tpot_error),
        ("step", learner.step_error),
    )


def _names(replica: Replica) -> list[str]:
    return sorted((replica.models or frozenset()) - {ANY}) or [UNNAMED]


def report(replica: Replica) -> dict[str, Any]:
    """Return a replica's learned speed and its errors for GET /replicas.

    The end of each name states the unit: milliseconds, tokens or percent.
    """
    speed, learner = replica.speed, replica.learned.speeds
    return {
        "is_known": speed.is_known,
        "samples": {"ttft": learner.prefill.samples, "tpot": learner.decode.samples},
        "ttft_ms": {
            "base": 1e3 * speed.base_s,
            "per_1000_tokens": 1e6 * speed.token_s,
            # The added milliseconds for 1,000 tokens, each with 1,000 tokens of context before it.
            "per_1000_tokens_after_1000": 1e9 * speed.attention_s,
            "per_running_sequence": 1e3 * speed.running_s,
        },
        "tpot_ms": {
            "base": 1e3 * speed.step_s,
            "per_sequence": 1e3 * speed.sequence_s,
            "per_1000_context_tokens": 1e6 * speed.context_s,
        },
        "delay_share": speed.delay_share,
        "context_tokens": replica.context_tokens,
        "error_percent": {
            kind: 100.0 * error.absolute if error.count else None for kind, error in _kinds(replica)
        },
        "bias_percent": {
            kind: 100.0 * error.signed if error.count else None for kind, error in _kinds(replica)
        },
    }
