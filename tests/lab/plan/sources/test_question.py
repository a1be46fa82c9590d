"""The queries, and whether the exporters have what they name."""

from typing import Any

import pytest

from router.app.families import FLEET, QUEUE
from router.lab.plan.observed import Place
from router.lab.plan.sources.prometheus_api import Sampled
from router.lab.plan.sources.question import COUNTERS, Question
from router.observe.families.request_families import FAMILIES
from router.observe.metrics import TOKEN_KINDS
from tests.places import DATA


def question(**more: Any) -> Question:
    return Question(**{"window_s": 900.0, "history_s": 9000.0, **more})


def test_the_queries_for_hedgerow() -> None:
    one = question()
    assert one.increase(one.names.requests) == (
        "sum by (model, region, class) (increase(hedgerow_model_requests_total[900000ms]))"
    )
    assert one.running == "max by (model, region, type) (hedgerow_model_replicas)"
    assert one.waiting == 'sum (hedgerow_queue_depth{class!="batch"})'


def test_matchers_are_added_to_every_selector() -> None:
    one = question(match='job="a",env=~"p.*"', region_label="exported_region")
    assert one.increase(one.names.output) == (
        "sum by (model, exported_region, class) (increase(hedgerow_model_tokens_total"
        '{kind="output", job="a",env=~"p.*"}[900000ms]))'
    )
    assert one.running == (
        'max by (model, exported_region, type) (hedgerow_model_replicas{job="a",env=~"p.*"})'
    )
    assert one.waiting == 'sum (hedgerow_queue_depth{class!="batch", job="a",env=~"p.*"})'
    assert question(match='a="b"', running_query="mine").running == "mine"


@pytest.mark.parametrize(
    ("labels", "more", "place"),
    [
        ({"model": "m", "region": "eu"}, {}, Place("m", "eu")),
        ({"model": "m"}, {}, Place("m")),
        (
            {"model_name": "m", "zone": "a"},
            {"counters": "vllm", "region_label": "zone"},
            ("m", "a"),
        ),
        ({"model": "m", "region": "eu"}, {"counters": "vllm"}, Place("m", "eu")),
    ],
)
def test_the_place_of_a_series(labels: dict[str, str], more: dict[str, str], place: Place) -> None:
    assert question(**more).place(Sampled(labels, ())) == place


def test_the_router_has_these_metrics() -> None:
    names = {f"hedgerow_{family.name}_total": family for family in FAMILIES}
    counters = COUNTERS["hedgerow"]
    for name in (counters.requests, counters.prompt, counters.cached, counters.output):
        family = names[name.partition("{")[0]]
        assert {counters.model, counters.region, counters.priority} <= {*family.labels}
    for kind in ("prompt", "cached", "output"):
        assert kind in TOKEN_KINDS
    (replicas,) = [one for one in FLEET if f"hedgerow_{one.name}" == counters.replicas]
    assert replicas.labels == ("model", "region", "type")
    (depth,) = [one for one in QUEUE if counters.waiting.startswith(f"hedgerow_{one.name}{{")]
    assert depth.labels == ("class",)


def test_vllm_has_these_counters() -> None:
    pages = [path.read_text() for path in sorted((DATA / "metrics").glob("vllm-*"))]
    counters = COUNTERS["vllm"]
    for name in (counters.prompt, counters.output, counters.requests, counters.cached):
        assert any(name in page for page in pages), name
    for name in (counters.waiting, counters.running):
        assert any(f"{name}{{" in page for page in pages), name
    assert any(f'{counters.model}="' in page for page in pages)
