"""The types file: what it means, and one problem per mistake."""

import re
from pathlib import Path

import pytest

from router.core.errors import ConfigError
from router.lab.plan.types_file import ModelSpeed, Reactive, Types, load, measured, parse
from tests.places import ROOT

SMALL = "types: [{name: gpu, cost: 2, models: {m: {throughput: 100}}}]\n"


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return caught.value.problems


def test_the_example_has_every_setting() -> None:
    text = (ROOT / "deploy" / "plan.yaml").read_text()
    types = parse(text)
    assert [one.name for one in types.types] == ["h100x2", "h100x2-spot", "l40s"]
    big, _, small = types.types
    assert (big.lead_s, big.start_cost, big.total) == (300.0, 0.6, 24)
    assert big.models["llama-3.3-70b"] == ModelSpeed(prefill=14000, decode=2400, min=1, max=16)
    assert small.models["qwen-2.5-7b"] == ModelSpeed(throughput=3500, min=1)
    keys = set(re.findall(r"([a-z_]+):", text))
    for struct in (Types, type(big), ModelSpeed, Reactive):
        assert keys >= {*struct.__struct_encode_fields__}


def test_the_examples_defaults_are_the_defaults() -> None:
    types = parse((ROOT / "deploy" / "plan.yaml").read_text())
    usual = parse(SMALL)
    for name in ("utilisation", "period_s", "cooldown_s", "scale_in_below", "scale_in_horizon_s"):
        assert getattr(types, name) == getattr(usual, name)
    assert (types.error_limit, types.reactive) == (usual.error_limit, usual.reactive)
    assert types.batch == usual.batch


def test_a_start_costs_its_lead_time_by_default() -> None:
    (one,) = parse("types: [{name: g, cost: 6, lead: 10m, models: {m: {throughput: 1}}}]").types
    assert one.per_start == pytest.approx(1.0)


def test_the_load_of_a_demand() -> None:
    assert ModelSpeed(prefill=100.0, decode=10.0).load(50.0, 20.0) == pytest.approx(2.5)
    assert ModelSpeed(throughput=100.0).load(50.0, 20.0) == pytest.approx(0.7)


def test_a_replica_has_its_stated_type_or_the_only_one() -> None:
    types = parse((ROOT / "deploy" / "plan.yaml").read_text())
    assert types.type_of("l40s") == "l40s"
    assert types.type_of("other") is None
    assert types.type_of("") is None
    assert parse(SMALL).type_of("") == "gpu"
    assert parse(SMALL).type_of("other") is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "types: is missing"),
        ("types: []", "types: must have at least one type"),
        ("types: [1]", "types[0]: must be a mapping, not a whole number"),
        ("types: [{name: a, cost: 1}]", "types[0].models: is missing"),
        (
            "types: [{name: a, cost: 1, models: {}}]",
            "types[0].models: must have at least one model",
        ),
        (SMALL.replace("2", "-1"), "types[0].cost: must be at least 0"),
        (
            SMALL.replace("throughput: 100", "prefill: 100"),
            "types[0].models.m: must have either throughput, or both prefill and decode",
        ),
        (
            SMALL.replace("throughput: 100", "throughput: 1, prefill: 1, decode: 1"),
            "types[0].models.m: must have either throughput, or both prefill and decode",
        ),
        (
            SMALL.replace("100", "100, min: 3, max: 2"),
            "types[0].models.m.min: must not be above max (2)",
        ),
        (SMALL.replace("cost: 2", "cost: 2, lead: soon"), "types[0].lead: must be a duration"),
        (SMALL.replace("cost: 2", "cots: 2, cost: 2"), "types[0].cots: unknown key; did you mean"),
        (SMALL + "utilization: 0.5", "utilization: unknown key; did you mean utilisation?"),
        (SMALL + "utilisation: 0", "utilisation: must be above 0"),
        (SMALL + "utilisation: 0.5", "scale_in_below: must not be above utilisation"),
        (SMALL + "reactive: {up: 0.3}", "reactive.down: must be below reactive.up"),
        (
            SMALL + "shift: [{source: eu, target: ''}]",
            "shift[0].source: unknown region 'eu'; known: ''",
        ),
        (
            SMALL + "shift: [{source: '', target: ''}]",
            "shift[0]: source and target must be different regions",
        ),
    ],
)
def test_a_mistake_is_named(text: str, problem: str) -> None:
    found = problems_of(text)
    assert len(found) == 1
    assert found[0].startswith(problem)


def test_two_types_of_one_name() -> None:
    one = "{name: gpu, cost: 2, models: {m: {throughput: 100}}}"
    assert problems_of(f"types: [{one}, {one}]") == [
        "types[1].name: 'gpu' is the name of another type"
    ]


def test_every_mistake_is_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(
        "types: [{name: a, cost: x, models: {m: {throughput: 1, max: -1}}}]\nperiod: 0\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert len(caught.value.problems) == 3


def test_measured_throughputs_are_one_type() -> None:
    types = measured({"m": 50.0}, ("eu",))
    (one,) = types.types
    assert (one.cost, one.regions, one.speed("m")) == (1.0, ("eu",), ModelSpeed(throughput=50.0))
