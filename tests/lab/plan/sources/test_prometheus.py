"""Demand and fleet from Hedgerow's and vLLM's counters in Prometheus.

`tests/app/plan/test_real_prometheus.py` sends the same queries to a real server.
"""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from router.lab.plan.observed import Place
from router.lab.plan.sources.prometheus import filled, gaps, read
from router.lab.plan.sources.prometheus_api import Fetch, Prometheus, PrometheusError
from router.lab.plan.sources.question import Question
from router.lab.plan.types_file import Types, parse

NOW = 1_772_323_200.0 + 450.0  # in the middle of a window
END = NOW - 450.0
WINDOW = 900.0
DAY = 96  # windows
# Labels, and the value at a time; None: there is no sample.
Series = tuple[dict[str, str], Callable[[float], float | None]]
ONE = parse("types: [{name: gpu, cost: 1, models: {m: {throughput: 9}}}]")
TWO = parse(
    "types: [{name: h100, cost: 2, models: {m: {throughput: 9}}}, "
    "{name: l40s, cost: 1, models: {m: {throughput: 4}}}]\nbatch: 0.5"
)


def fetch(answers: dict[str, list[Series]], asked: list[dict[str, str]] | None = None) -> Fetch:
    """Answers a query with the series of the first key that it contains; else with none."""

    def get(url: str) -> bytes:
        words = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        query = words["query"]
        if asked is not None:
            asked.append(words)
        found = next((series for key, series in answers.items() if key in query), [])
        result: list[dict[str, Any]] = []
        for labels, value in found:
            if "time" in words:
                at = float(words["time"])
                if (now := value(at)) is not None:
                    result.append({"metric": labels, "value": [at, str(now)]})
                continue
            at, end, step = (float(words[name]) for name in ("start", "end", "step"))
            values = []
            while at <= end:
                if (then := value(at)) is not None:
                    values.append([at, str(then)])
                at += step
            if values:
                result.append({"metric": labels, "values": values})
        kind = "vector" if "time" in words else "matrix"
        data = {"resultType": kind, "result": result}
        return json.dumps({"status": "success", "data": data, "warnings": ["partial"]}).encode()

    return get


def always(value: float, **labels: str) -> Series:
    return labels, lambda at: value


def ask(
    answers: dict[str, list[Series]], types: Types = ONE, windows: int = 10, **more: Any
) -> Any:
    question = Question(window_s=WINDOW, history_s=windows * WINDOW, **more)
    return read(Prometheus("http://p", fetch(answers)), question, NOW, types)


HEDGEROW = {
    "hedgerow_model_requests_total": [always(90.0, model="m"), always(9.0, model="n")],
    'kind="prompt"': [always(1000.0, model="m")],
    'kind="cached"': [always(400.0, model="m")],
    'kind="output"': [always(200.0, model="m")],
    "hedgerow_queue_depth": [always(3.0)],
}


def test_hedgerows_counters() -> None:
    observed = ask(HEDGEROW)
    assert observed.now_s == END
    assert observed.windows == 10
    series = observed.demand[Place("m")]
    assert series.requests == [90.0] * 10
    assert series.prompt == [600.0] * 10  # without the cached ones
    assert series.output == [200.0] * 10
    assert observed.demand[Place("n")].tokens == [0.0] * 10
    # The queue has both models; it is divided in proportion to 90 and 9 requests.
    shares = [observed.waiting[Place(name)] for name in "mn"]
    assert shares == pytest.approx([3.0 * 90 / 99, 3.0 * 9 / 99])
    assert observed.running is None
    assert observed.notes == ["Prometheus warns: partial"]


def test_the_state_of_the_fleet_is_that_of_now() -> None:
    """It is not that of the end of the last window, which may be fifteen minutes old."""
    asked: list[dict[str, str]] = []
    question = Question(window_s=WINDOW, history_s=4 * WINDOW)
    read(Prometheus("http://p", fetch(HEDGEROW, asked)), question, NOW, ONE)
    assert {float(words["time"]) for words in asked if "time" in words} == {NOW}
    (changes,) = [words for words in asked if "replicas" in words["query"] and "end" in words]
    assert float(changes["end"]) == NOW
    demand = [words for words in asked if "increase" in words["query"]]
    assert {float(words["end"]) for words in demand} == {END}


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


def test_the_replicas_by_region_and_type() -> None:
    changed_at = NOW - 1800.0

    def count(at: float) -> float:
        return 2.0 if at < changed_at else 3.0

    series = [
        ({"model": "m", "region": "eu", "type": "h100"}, count),
        always(1.0, model="m", region="eu", type="l40s"),
        always(5.0, model="m", region="us", type="l40s"),
        always(0.0, model="m", region="us", type="a10"),
        always(4.0, model="m", region="us"),
    ]
    for answers, more in (
        ({**HEDGEROW, "hedgerow_model_replicas": series}, {}),
        ({**HEDGEROW, "mine": series}, {"running_query": "mine"}),
    ):
        observed = ask(answers, TWO, **more)
        assert observed.running == {
            Place("m", "eu"): {"h100": 3, "l40s": 1},
            Place("m", "us"): {"l40s": 5},
        }
        assert observed.unchanged_s == {Place("m", "eu"): 1800.0}
        assert observed.notes[0] == "no type '' in the types file: 4 replicas are not counted"


def test_time_before_the_first_sample_is_not_demand() -> None:
    begin = END - 4 * WINDOW

    def late(at: float) -> float | None:
        return 5.0 if at > begin else None

    def idle(at: float) -> float:
        return 5.0 if at > begin else 0.0

    observed = ask({"requests": [({"model": "m"}, late)]})
    assert observed.windows == 3, "the first window was recorded in part"
    assert observed.begin_s == begin + WINDOW
    observed = ask({"requests": [({"model": "m"}, idle)]})
    assert observed.windows == 4, "the windows before it were recorded without demand"


def test_a_time_without_samples_has_the_demand_of_the_day_before() -> None:
    def value(at: float) -> float | None:
        number = round((at - END) / WINDOW)
        return None if number in (-4, -5) else float(number + 1000)

    answers: dict[str, list[Series]] = {
        "requests": [({"model": "m"}, value)],
        "output": [({"model": "m"}, value)],
    }
    observed = ask(answers, windows=2 * DAY)
    for found in (observed.demand[Place("m")].requests, observed.demand[Place("m")].output):
        assert found[-8:-1] == [
            993.0,
            *(number + 1000.0 - DAY for number in range(-6, -2)),
            998,
            999,
        ]
    assert observed.notes[0].startswith("4 windows of 900 s without samples, or beside")


def error(answers: dict[str, list[Series]], **more: Any) -> str:
    with pytest.raises(PrometheusError) as caught:
        ask(answers, **more)
    return str(caught.value)


def test_no_demand_is_an_error() -> None:
    assert error({"requests": [always(0.0, model="m")]}).startswith(
        "no demand: hedgerow_model_requests_total did not increase in the last 2.5 h"
    )


def test_no_plan_is_made_without_samples_of_the_last_window() -> None:
    def stopped(at: float) -> float | None:
        return 5.0 if at < END - WINDOW else None

    old: dict[str, list[Series]] = {"increase(hedgerow_model_requests": [({"model": "m"}, stopped)]}
    assert "Prometheus does not scrape it any more" in error(old)
    assert error({}).startswith("no series hedgerow_model_requests_total: ")
    assert error({}, match='job="x"').startswith('no series hedgerow_model_requests_total{job="x"}')
    rare = error({"count(": [always(2.0)]})
    assert "no two of them in the last window of 900 s: wait" in rare


def test_an_unknown_exporter_is_refused() -> None:
    with pytest.raises(ValueError, match="'tgi' is unknown; allowed: hedgerow, vllm"):
        ask(HEDGEROW, counters="tgi")


@pytest.mark.parametrize(
    ("recorded", "missing"),
    [
        ("xxxx", []),
        ("x.xxx", [1, 2]),
        ("xx.xx", [1, 2, 3]),
        ("xxx..xxx", [2, 3, 4, 5]),
        ("xxx.x", [2, 3]),  # the last window stays as it is
        ("x", []),
        ("xx", []),
    ],
)
def test_a_window_beside_one_without_samples_is_missing_too(
    recorded: str, missing: list[int]
) -> None:
    assert gaps([sign == "x" for sign in recorded]) == missing


def test_the_day_before_fills_a_gap() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 8.0]
    assert filled(values, [4, 5, 6], 4) == [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 8.0]
    assert values[4] == 0.0, "the argument is not changed"


def test_on_the_first_day_the_window_before_fills_it() -> None:
    assert filled([5.0, 0.0, 0.0, 7.0], [1, 2], 96) == [5.0, 5.0, 5.0, 7.0]
