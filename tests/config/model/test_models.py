"""The section `models`: its short forms, and the problems that are reported."""

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


def test_a_credential_needs_one_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVIDER_KEY", "sk-1")
    monkeypatch.delenv("MISSING", raising=False)
    for credential, problem in (
        ({}, "pools.p.credential: needs one of token, token_file and token_env"),
        ({"token": "a", "token_env": "PROVIDER_KEY"}, "pools.p.credential: needs one of token"),
        ({"token_env": "MISSING"}, "pools.p.credential.token_env: 'MISSING' is not in the"),
        ({"token_file": "/no/file"}, "pools.p.credential.token_file: cannot read '/no/file'"),
        ({"token": "sk secret"}, "pools.p.credential.token: a token is one word of visible"),
        ({"token": "sk", "header": "Host"}, "pools.p.credential.header: is not a header field"),
    ):
        found = problems(pools={"p": {"credential": credential}})
        assert len(found) == 1 and found[0].startswith(problem), found
        assert "sk" not in found[0]
    parse("", {"pools": {"p": {"credential": {"token_env": "PROVIDER_KEY"}}}}, serves=False)


@pytest.mark.parametrize(
    ("pool", "problem"),
    [
        ({"headers": {"x y": "a"}}, "pools.p.headers.x y: is not a header field that can be set"),
        ({"headers": {"x-a": "a\r\nb: c"}}, "pools.p.headers.x-a: must be one line of visible"),
        ({"headers": {"Content-Length": "3"}}, "pools.p.headers.Content-Length: is not a header"),
        ({"ca_file": "/no/file"}, "pools.p.ca_file: cannot read '/no/file'"),
        ({"server_name": "a b"}, "pools.p.server_name: "),
    ],
)
def test_how_a_pool_is_reached(pool: Any, problem: str) -> None:
    found = problems(pools={"p": pool})
    assert len(found) == 1 and found[0].startswith(problem), found


def test_a_replica_of_a_provider_states_its_models_and_its_region() -> None:
    replica: dict[str, Any] = {"url": "https://api.test", "pool": "p"}
    sections = {"pools": {"p": {"external": True}}, "region": "eu"}
    assert problems(replicas=[replica], **sections) == [
        "replicas[0].models: is needed in an external pool"
    ]
    replica["models"] = ["gpt"]
    assert parse("", {"replicas": [replica], **sections}).replicas[0].region == ""
    replica["region"] = "us"
    assert parse("", {"replicas": [replica], **sections}).replicas[0].region == "us"
