"""The gauges, as Prometheus reads them, and the queries of deploy/keda."""

import re
import shlex

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from router.cli import _parser
from router.lab.plan.output.gauges import DESIRED, text
from tests.lab.plan.output.plans import plan
from tests.places import ROOT

KEDA = ROOT / "deploy" / "keda" / "hedgerow-plan.yaml"
GUIDE = (ROOT / "deploy" / "autoscaling.md").read_text()


def gauges(*, known: bool = True) -> dict[str, dict[tuple[str, ...], float]]:
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text(plan(known=known), 1_772_500_000.0)):
        assert family.documentation
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def test_the_desired_replicas() -> None:
    found = gauges()
    assert found[DESIRED] == {
        ("m", "eu", "gpu"): 4.0,
        ("m", "us", "gpu"): 3.0,
        ('odd"name', "eu", "gpu"): 3.0,
    }
    assert found["hedgerow_plan_current_replicas"]["m", "eu", "gpu"] == 3.0
    assert found["hedgerow_plan_reactive_replicas"]["m", "eu", "gpu"] == 4.0  # its maximum
    assert found["hedgerow_plan_fallback"] == {
        ("m", "eu"): 0.0,
        ("m", "us"): 0.0,
        ('odd"name', "eu"): 1.0,
    }
    assert found["hedgerow_plan_demand_tokens_per_second"]["m", "eu"] == pytest.approx(600.0)
    # The plan uses both regions completely, and the third forecast is not trusted.
    assert found["hedgerow_plan_batch_share_ratio"] == {("m", "eu"): 0.0, ("m", "us"): 0.0}
    assert found["hedgerow_plan_cost_per_hour"] == {(): 20.0}
    assert found["hedgerow_plan_timestamp_seconds"] == {(): 1_772_500_000.0}


def test_unknown_numbers_have_no_series() -> None:
    assert "hedgerow_plan_current_replicas" not in gauges(known=False)


def test_node_exporter_accepts_no_timestamps() -> None:
    for line in text(plan(), 1.0).splitlines():
        assert line.startswith("#") or re.fullmatch(r"\w+(\{.*\})? \S+", line), line


def test_kedas_objects_name_gauges_and_flags_that_exist() -> None:
    deployment, scaled = yaml.safe_load_all(KEDA.read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    words = [word.strip() for word in container["args"]]
    args = _parser(words).parse_args(words)
    assert args.serve == ("0.0.0.0", 9902)
    assert container["ports"][0]["containerPort"] == 9902
    (trigger,) = scaled["spec"]["triggers"]
    metrics = re.findall(r"hedgerow_\w+", trigger["metadata"]["query"])
    assert DESIRED in metrics
    assert set(metrics) <= set(gauges())
    assert scaled["spec"]["scaleTargetRef"]["name"] == scaled["metadata"]["name"]


def test_the_guide_names_what_exists() -> None:
    commands = re.findall(r"^hedgerow .+$", GUIDE, flags=re.MULTILINE)
    assert len(commands) >= 4
    for command in commands:
        words = shlex.split(command)[1:]
        assert _parser(words).parse_args(words).run is not None
    assert set(re.findall(r"hedgerow_plan_\w+", GUIDE)) <= set(gauges())
    for link in re.findall(r"\]\(([^)#]+)\)", GUIDE):
        assert (ROOT / "deploy" / link).exists(), link
