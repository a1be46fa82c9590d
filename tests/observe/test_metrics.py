"""Counters: where each event is counted, and a limit on series created by clients."""

import math

from hypothesis import given, strategies as st

from router.core.errors import Reason
from router.intake.routes import KINDS
from router.observe.metrics import (
    BOUNDS_S,
    ENDS_MAX,
    MODEL_ENDS_MAX,
    MODELS_MAX,
    OTHER,
    REGIONS_MAX,
    REPLICAS_MAX,
    Histogram,
    Metrics,
    label,
)


def finish(metrics: Metrics, kind: str = "chat", **changes: object) -> None:
    fields: dict[str, object] = {
        "reason": Reason.OK,
        "status": 200,
        "duration_s": 0.2,
        "ttft_s": 0.02,
        "bytes_in": 10,
        "bytes_out": 100,
    }
    metrics.finished(kind, **(fields | changes))  # type: ignore[arg-type]


def requests(metrics: Metrics) -> dict[tuple[str, str, str], int]:
    return {key: counts.requests for key, counts in metrics.models.items()}


def test_a_finished_request_is_counted_in_its_kind() -> None:
    metrics = Metrics()
    finish(metrics)
    finish(metrics, reason=Reason.CLIENT_GONE, status=499, ttft_s=None)
    chat = metrics.kinds["chat"]
    assert chat.ends == {(Reason.OK, 200): 1, (Reason.CLIENT_GONE, 499): 1}
    assert (sum(chat.duration.counts), sum(chat.ttft.counts)) == (2, 1)
    assert (chat.duration.sum, chat.ttft.sum) == (0.4, 0.02)
    assert (chat.bytes_in, chat.bytes_out) == (20, 200)
    assert not metrics.kinds["embeddings"].ends


def test_an_unknown_kind_counts_as_other() -> None:
    metrics = Metrics()
    finish(metrics, kind="/v1/new")
    assert set(metrics.kinds) == set(KINDS)
    assert metrics.kinds[OTHER].ends == {(Reason.OK, 200): 1}


def test_odd_statuses_of_a_replica_end_up_in_their_class() -> None:
    metrics = Metrics()
    for status in range(-100, 2000):
        finish(metrics, model="m", status=status)
    kind, model = metrics.kinds["chat"].ends, metrics.model_ends["m"].ends
    assert len(kind) <= ENDS_MAX + 6 and len(model) <= MODEL_ENDS_MAX + 6
    assert sum(kind.values()) == sum(model.values()) == 2100


def test_invented_models_get_no_label() -> None:
    metrics = Metrics()
    for number in range(1000):
        finish(metrics, reason=Reason.MODEL_NOT_FOUND, status=404, model=f"junk-{number}")
    finish(metrics, model="llama")
    finish(metrics, model="llama", reason=Reason.CLIENT_GONE, status=499)
    assert requests(metrics) == {("llama", "", ""): 2, (OTHER, "", ""): 1000}


def test_models_beyond_the_cap_are_other() -> None:
    metrics = Metrics()
    for number in range(100_000):
        finish(metrics, model=f"m{number}")
    assert len(metrics.models) == len(metrics.named) + 1 == MODELS_MAX + 1
    assert requests(metrics)[OTHER, "", ""] == 100_000 - MODELS_MAX


def test_requests_and_tokens_are_counted_by_region_and_class() -> None:
    metrics = Metrics()
    for region, urgency in (("eu", "high"), ("us", "high"), ("eu", "batch"), ("eu", "high")):
        finish(metrics, model="m", region=region, urgency=urgency)
        metrics.counted_tokens("m", region, urgency, 100, 10, 40, "r0")
    assert requests(metrics) == {
        ("m", "eu", "high"): 2,
        ("m", "us", "high"): 1,
        ("m", "eu", "batch"): 1,
    }
    counts = metrics.models["m", "eu", "high"]
    assert (counts.prompt, counts.output, counts.cached) == (200, 20, 80)


def test_regions_beyond_the_cap_are_other() -> None:
    metrics = Metrics()
    for number in range(1000):
        finish(metrics, model="m", region=f"r{number}")
        metrics.counted_tokens("m", f"r{number}", "", 1, 1, 0, "r0")
    assert len(metrics.models) == REGIONS_MAX + 1
    assert metrics.models["m", OTHER, ""].requests == 1000 - REGIONS_MAX
    assert metrics.models["m", OTHER, ""].prompt == 1000 - REGIONS_MAX


def test_tokens_of_an_unnamed_model_are_other() -> None:
    metrics = Metrics()
    metrics.counted_tokens(None, "eu", "low", 5, None, None, "r0")
    metrics.counted_tokens("junk", "eu", "low", 5, None, None, "r0")
    assert list(metrics.models) == [(OTHER, "eu", "low")]
    assert metrics.models[OTHER, "eu", "low"].prompt == 10


def test_a_configured_model_has_a_name_before_its_first_success() -> None:
    metrics = Metrics()
    metrics.configured = frozenset({"m@canary"})
    finish(metrics, reason=Reason.SERVER_ERROR, status=502, model="m@canary", ttft_s=None)
    finish(metrics, reason=Reason.SERVER_ERROR, status=502, model="junk", ttft_s=None)
    assert requests(metrics) == {("m@canary", "", ""): 1, (OTHER, "", ""): 1}


def test_the_ends_and_first_tokens_of_a_model_are_counted_over_all_regions_and_classes() -> None:
    metrics = Metrics()
    for region, urgency in (("eu", "high"), ("us", "low"), ("us", "low")):
        finish(metrics, model="m", region=region, urgency=urgency, ttft_s=0.02)
    finish(metrics, model="m", reason=Reason.REPLICA_RESET, ttft_s=0.02)
    finish(metrics, model="m", streamed=False, ttft_s=9.0)
    finish(metrics, model="m", ttft_s=None, duration_s=9.0)
    counts = metrics.model_ends["m"]
    assert counts.ends == {(Reason.OK, 200): 5, (Reason.REPLICA_RESET, 200): 1}
    assert (sum(counts.ttft.counts), counts.ttft.sum) == (4, 0.08)


def test_tokens_are_counted_by_replica() -> None:
    metrics = Metrics()
    for replica_id in ("r0", "r1", "r0"):
        metrics.counted_tokens("m", "", "", 100, 10, 40, replica_id)
    metrics.counted_tokens("m", "", "", None, 1, None, "r1")
    metrics.counted_tokens("m", "", "", 7, 7, 7, "gone", is_removed=True)
    counted = {
        name: (each.prompt, each.output, each.cached)
        for name, each in metrics.tokens_by_replica.items()
    }
    assert counted == {"r0": (200, 20, 80), "r1": (100, 11, 40), OTHER: (7, 7, 7)}
    metrics.forget_replica("r0")
    assert metrics.tokens_by_replica.keys() == {"r1", OTHER}


def test_replicas_beyond_the_cap_are_other() -> None:
    metrics = Metrics()
    for number in range(REPLICAS_MAX + 50):
        metrics.attempt(f"r{number}", "primary", Reason.OK)
        metrics.ejections(f"r{number}")
        metrics.counted_tokens("m", "", "", 1, 1, 1, f"r{number}")
    assert len(metrics.attempts) == len(metrics.ejections_by_replica) == REPLICAS_MAX + 1
    assert len(metrics.tokens_by_replica) == REPLICAS_MAX + 1
    assert metrics.tokens_by_replica[OTHER].output == 50
    assert metrics.attempts[OTHER, "primary", Reason.OK] == 50
    assert metrics.ejections_by_replica[OTHER] == 50


def test_a_forgotten_replica_frees_its_label() -> None:
    metrics = Metrics()
    for number in range(10_000):
        metrics.attempt(f"r{number}", "primary", Reason.OK)
        metrics.attempt(f"r{number}", "retry", Reason.REPLICA_RESET)
        metrics.ejections(f"r{number}")
        metrics.forget_replica(f"r{number}")
    metrics.forget_replica("never seen")
    assert not metrics.attempts
    assert not metrics.ejections_by_replica


def test_an_attempt_of_an_unknown_kind_counts_as_other() -> None:
    metrics = Metrics()
    metrics.attempt("r", "surprise", Reason.OK)
    metrics.attempt("r", "surprise", Reason.OK)
    assert metrics.attempts == {("r", OTHER, Reason.OK): 2}


def test_a_failed_reload_keeps_the_hash() -> None:
    metrics = Metrics()
    metrics.reloads.count(True, "aaaa")
    metrics.reloads.count(False)
    assert (metrics.reloads.config_hash, metrics.reloads.last_is_ok) == ("aaaa", False)
    assert (metrics.reloads.ok, metrics.reloads.failed) == (1, 1)


def test_a_bound_belongs_to_its_own_bucket() -> None:
    histogram = Histogram()
    histogram.observe(BOUNDS_S[3])
    assert dict(histogram.cumulative())[BOUNDS_S[3]] == 1
    assert dict(histogram.cumulative())[BOUNDS_S[2]] == 0


@given(st.lists(st.floats()))
def test_buckets_sum_and_grow(values: list[float]) -> None:
    histogram = Histogram()
    metrics = Metrics()
    for value in values:
        histogram.observe(value)
        finish(metrics, duration_s=value, ttft_s=value)
    cumulative = [count for _, count in histogram.cumulative()]
    assert cumulative == sorted(cumulative)
    assert cumulative[-1] == sum(histogram.counts) == len(values)
    assert not math.isnan(histogram.sum)
    usable = [value if value > 0 else 0.0 for value in values]
    for bound, count in histogram.cumulative():
        assert count == sum(1 for value in usable if value <= bound)
    for written_out in (metrics.kinds["chat"].duration, metrics.kinds["chat"].ttft):
        assert written_out.counts == histogram.counts
        assert written_out.sum == histogram.sum


@given(st.text(st.characters(exclude_categories=())))
def test_every_label_encodes(text: str) -> None:
    assert len(label(text).encode()) <= 4 * 128
