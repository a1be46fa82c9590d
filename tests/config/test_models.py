"""The section `models`: its short forms, and the problems that are reported."""

from __future__ import annotations

from typing import Any

import pytest

from router.config.load import parse
from router.config.model import ModelRoute, SplitTarget
from router.core.errors import ConfigError


def problems(**sections: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse("", sections, serves=False)
    return caught.value.problems


def test_short_forms_mean_the_same_as_long_forms() -> None:
    short = parse("", {"models": {"a": "x", "b": {"targets": ["x"]}}}, serves=False).models
    long = {"a": {"targets": [{"model": "x"}]}}
    assert parse("", {"models": long}, serves=False).models["a"] == short["a"] == short["b"]
    assert short["a"] == ModelRoute(targets=(SplitTarget(model="x"),))


@pytest.mark.parametrize(
    ("models", "problem"),
    [
        ({"a": {"targets": [{"pool": "no"}]}}, "models.a.targets[0].pool: there is no pool 'no'"),
        ({"a": {"targets": ["x", {"model": "x"}]}}, "models.a.targets[1]: has the model and the"),
        ({"a": {"targets": [{"weight": 0}]}}, "models.a.targets: one weight must be above 0"),
        ({"a": {"targets": [{"weight": -1}]}}, "models.a.targets[0].weight: must be at least 0"),
        ({"a": {"targets": [7]}}, "models.a.targets[0]: must be a mapping, not a whole number"),
        ({"a": 7}, "models.a: must be a mapping, not a whole number"),
        ({"a" * 257: "x"}, f"models.{'a' * 257}: a model's name has 1 to 256 characters"),
        ({"": "x"}, "models.: a model's name has 1 to 256 characters"),
    ],
)
def test_each_problem_is_reported_once(models: Any, problem: str) -> None:
    found = problems(models=models)
    assert len(found) == 1, found
    assert found[0].startswith(problem)


def test_a_pool_of_a_replica_must_exist() -> None:
    replica = {"url": "http://a", "pool": "canary"}
    assert problems(replicas=[replica]) == ["replicas[0].pool: there is no pool 'canary' in pools"]
    assert parse("", {"replicas": [replica], "pools": {"canary": None}}).replicas[0].pool


def test_the_name_of_a_pool_is_one_word() -> None:
    assert problems(pools={"a@b": {}}) == ["pools.a@b: must be 1 to 64 letters, digits and ._-"]
