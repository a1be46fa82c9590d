"""What the names that clients write stand for: targets, weights and sessions."""

from typing import Any

import pytest

from router.config.load import parse
from router.fleet.names import NO_NAMES, NamedModel, Names

REQUESTS = 20_000


def named(**route: Any) -> NamedModel:
    config = parse("", {"models": {"chat": route}, "pools": {"canary": {}}}, serves=False)
    found = Names(config).find("chat")
    assert found is not None
    return found


def split(*weights: float, sticky: str = "session") -> NamedModel:
    targets = [{"model": f"m{place}", "weight": weight} for place, weight in enumerate(weights)]
    return named(targets=targets, sticky=sticky)


def chosen(route: NamedModel, sessions: int = REQUESTS) -> list[str]:
    return [route.target(f"s{number}", "", "").routed for number in range(sessions)]


def test_a_name_that_is_not_configured_means_itself() -> None:
    assert not NO_NAMES.is_used
    assert NO_NAMES.find("chat") is None
    assert NO_NAMES.find(None) is None


def test_an_alias_has_one_target() -> None:
    config = parse("", {"models": {"chat": "llama"}}, serves=False)
    names = Names(config)
    found = names.find("chat")
    assert found is not None and found.is_alias
    assert names.aliases == [found]
    assert found.target(None, "", "r").routed == found.target("s", "f", "r").model == "llama"


def test_a_target_with_a_pool_has_a_name_of_its_own() -> None:
    config = {"models": {"chat": {"targets": [{"pool": "canary"}]}}, "pools": {"canary": {}}}
    names = Names(parse("", config, serves=False))
    found = names.find("chat")
    assert found is not None
    target = found.target(None, "", "r")
    assert (target.model, target.routed) == ("chat", "chat@canary")
    assert names.pooled == {"chat@canary": target}


POOLS: dict[str, Any] = {"stable": {}, "canary": {}}
SPLIT = {"targets": [{"pool": "stable", "weight": 3}, {"pool": "canary"}], "sticky": "flow"}


def test_an_alias_of_a_split_model_has_the_same_targets() -> None:
    models = {"llama": {**SPLIT, "fallbacks": ["small"]}, "chat": "llama"}
    names = Names(parse("", {"models": models, "pools": POOLS}, serves=False))
    alias, split_model = names.find("chat"), names.find("llama")
    assert alias is not None and split_model is not None
    assert alias.is_alias and not split_model.is_alias
    assert [(each.model, each.routed) for each in alias.targets] == [
        ("llama", "llama@stable"),
        ("llama", "llama@canary"),
    ]
    assert [each.routed for each in alias.fallbacks] == ["small"]
    for number in range(100):
        one, two = (each.target("s", f"f{number}", "r") for each in (alias, split_model))
        assert one.routed == two.routed
    assert {name for name, each in names.pooled.items() if each.pool} == set(names.pooled)


def test_two_aliases_may_exchange_two_models() -> None:
    names = Names(parse("", {"models": {"a": "b", "b": "a"}}, serves=False))
    for name, other in (("a", "b"), ("b", "a")):
        found = names.find(name)
        assert found is not None
        assert [each.routed for each in found.targets] == [other]


def test_a_target_with_a_pool_is_not_split() -> None:
    models = {"llama": SPLIT, "chat": {"targets": [{"model": "llama", "pool": "stable"}]}}
    found = Names(parse("", {"models": models, "pools": POOLS}, serves=False)).find("chat")
    assert found is not None
    assert [each.routed for each in found.targets] == ["llama@stable"]


@pytest.mark.parametrize("weights", [(95.0, 5.0), (1.0, 1.0, 2.0), (0.5, 0.3, 0.2), (1.0, 0.0)])
@pytest.mark.parametrize("sticky", ["session", "flow", "request"])
def test_each_target_gets_its_share(weights: tuple[float, ...], sticky: str) -> None:
    route = split(*weights, sticky=sticky)
    each = [route.target(f"s{n}", f"f{n}", f"r{n}").routed for n in range(REQUESTS)]
    for place, weight in enumerate(weights):
        share = each.count(f"m{place}") / REQUESTS
        assert share == pytest.approx(weight / sum(weights), abs=0.02)
        assert weight or not share


@pytest.mark.parametrize(
    ("sticky", "same", "other"),
    [
        ("session", ("s", "f1", "r1"), ("s", "f2", "r2")),
        ("flow", ("s1", "f", "r1"), ("s2", "f", "r2")),
    ],
)
def test_the_requests_of_one_party_get_one_target(
    sticky: str, same: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    route = split(1.0, 1.0, sticky=sticky)
    for number in range(100):
        one = [f"{part}{number}" if part in ("s", "f") else part for part in same]
        two = [f"{part}{number}" if part in ("s", "f") else part for part in other]
        assert route.target(*one) is route.target(*two)


@pytest.mark.parametrize("sticky", ["session", "request"])
def test_a_request_without_a_session_gets_a_target_of_its_own(sticky: str) -> None:
    route = split(1.0, 1.0, sticky=sticky)
    session = None if sticky == "session" else "s"
    each = [route.target(session, "f", f"r{number}").routed for number in range(1000)]
    assert 400 < each.count("m0") < 600


def test_a_change_of_weights_moves_few_sessions() -> None:
    before, after = chosen(split(95.0, 5.0)), chosen(split(90.0, 10.0))
    moved = [(b, a) for b, a in zip(before, after, strict=True) if b != a]
    assert {(b, a) for b, a in moved} == {("m0", "m1")}
    assert len(moved) / REQUESTS == pytest.approx(0.05, abs=0.02)


def test_another_target_gets_sessions_from_all_others_only() -> None:
    before, after = chosen(split(1.0, 1.0)), chosen(split(1.0, 1.0, 1.0))
    assert {a for b, a in zip(before, after, strict=True) if b != a} == {"m2"}
