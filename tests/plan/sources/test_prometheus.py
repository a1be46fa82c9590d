"""Demand and fleet from Hedgerow's and vLLM's counters in Prometheus."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from router.observe.families.request_families import FAMILIES
from router.observe.metrics import TOKEN_KINDS
from router.plan.observed import Place
from router.plan.sources.prometheus import COUNTERS, Question, read
from router.plan.sources.prometheus_api import Fetch, Prometheus, PrometheusError
from tests.places import DATA

NOW = 1_772_323_200.0 + 450.0  # in the middle of a window
WINDOW = 900.0
Series = tuple[dict[str, str], Callable[[float], float]]  # labels, and the value at a time


def fetch(answers: dict[str, list[Series]], asked: list[str] | None = None) -> Fetch:
    """Answers a query with the series of the first key that it contains; else with none."""

    def get(url: str) -> bytes:
        words = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        query = words["query"]
        if asked is not None:
            asked.append(query)
        found = next((series for key, series in answers.items() if key in query), [])
        result: list[dict[str, Any]] = []
        for labels, value in found:
            if "time" in words:
                at = float(words["time"])
                result.append({"metric": labels, "value": [at, str(value(at))]})
                continue
            at, end, step = (float(words[name]) for name in ("start", "end", "step"))
            values = []
            while at <= end:
                values.append([at, str(value(at))])
                at += step
            result.append({"metric": labels, "values": values})
        kind = "vector" if "time" in words else "matrix"
        data = {"resultType": kind, "result": result}
        return json.dumps({"status": "success", "data": data}).encode()

    return get


def always(value: float, **labels: str) -> Series:
    return labels, lambda at: value


def ask(answers: dict[str, list[Series]], **more: Any) -> Any:
    question = Question(window_s=WINDOW, history_s=10 * WINDOW, **more)
    return read(Prometheus("http://p", fetch(answers)), question, NOW, "gpu")


HEDGEROW = {
    "hedgerow_model_requests_total": [always(90.0, model="m"), always(9.0, model="n")],
    'kind="prompt"': [always(1000.0, model="m")],
    'kind="cached"': [always(400.0, model="m")],
    'kind="output"': [always(200.0, model="m")],
    "hedgerow_queue_depth": [always(3.0)],
}


def test_hedgerows_counters() -> None:
    observed = ask(HEDGEROW)
    assert observed.now_s == NOW - 450.0
    assert observed.windows == 10
    series = observed.demand[Place("m")]
    assert series.requests == [90.0] * 10
    assert series.prompt == [600.0] * 10  # without the cached ones
    assert series.output == [200.0] * 10
    assert observed.demand[Place("n")].tokens == [0.0] * 10
    assert observed.waiting == {Place("m"): 3.0, Place("n"): 3.0}
    assert observed.running is None


def test_the_queries() -> None:
    asked: list[str] = []
    question = Question(window_s=WINDOW, history_s=WINDOW, region_label="region")
    answers = {"requests_total": [always(9.0, model="m", region="eu")]}
    read(Prometheus("http://p", fetch(answers, asked)), question, NOW, "gpu")
    assert asked[0] == "sum by (model, region) (increase(hedgerow_model_requests_total[900s]))"
    assert asked[-1] == "sum by (region) (hedgerow_queue_depth)"


def test_vllms_counters_with_regions() -> None:
    labels = {"model_name": "m", "zone": "eu"}
    observed = ask(
        {
            "count by": [always(4.0, **labels)],
            "vllm:request_success_total": [always(9.0, **labels)],
            "vllm:prompt_tokens_total": [always(100.0, **labels)],
            "vllm:generation_tokens_total": [always(50.0, **labels)],
            "vllm:num_requests_waiting": [always(7.0, **labels)],
        },
        counters="vllm",
        region_label="zone",
    )
    place = Place("m", "eu")
    assert observed.demand[place].prompt == [100.0] * 10
    assert observed.running == {place: {"gpu": 4}}
    assert observed.waiting == {place: 7.0}


def test_a_query_for_the_running_replicas() -> None:
    changed_at = NOW - 450.0 - 1800.0

    def count(at: float) -> float:
        return 2.0 if at < changed_at else 3.0

    observed = ask(
        {
            **HEDGEROW,
            "mine": [({"model": "m", "type": "h100"}, count), always(1.0, model="m", type="l40s")],
        },
        running_query="mine",
    )
    assert observed.running == {Place("m"): {"h100": 3, "l40s": 1}}
    assert observed.unchanged_s == {Place("m"): 1800.0}


def test_time_before_the_first_sample_is_not_demand() -> None:
    begin = NOW - 450.0 - 4 * WINDOW

    def late(at: float) -> float:
        return 5.0 if at > begin else 0.0

    observed = ask({"output": [({"model": "m"}, late)]})
    assert observed.windows == 4
    assert observed.begin_s == begin


def test_no_demand_is_an_error() -> None:
    with pytest.raises(PrometheusError, match="no demand: hedgerow_model_requests_total did not"):
        ask({})


def test_an_unknown_exporter_is_refused() -> None:
    with pytest.raises(ValueError, match="'tgi' is unknown; allowed: hedgerow, vllm"):
        ask(HEDGEROW, counters="tgi")


def test_the_router_has_these_counters() -> None:
    names = {f"hedgerow_{family.name}_total": family for family in FAMILIES}
    counters = COUNTERS["hedgerow"]
    for name in (counters.requests, counters.prompt, counters.cached, counters.output):
        family = names[name.partition("{")[0]]
        assert counters.model in family.labels
    for kind in ("prompt", "cached", "output"):
        assert kind in TOKEN_KINDS


def test_vllm_has_these_counters() -> None:
    pages = [path.read_text() for path in sorted((DATA / "metrics").glob("vllm-*"))]
    counters = COUNTERS["vllm"]
    for name in (counters.prompt, counters.output, counters.requests, counters.cached):
        assert any(name in page for page in pages), name
    for name in (counters.waiting, counters.running):
        assert any(f"{name}{{" in page for page in pages), name
    assert any(f'{counters.model}="' in page for page in pages)
