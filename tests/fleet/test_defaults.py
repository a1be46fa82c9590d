"""The models that a replica lists, and the model of requests that name none."""

from typing import Any, Literal

import pytest

from router.config.model import Health, Replica as Config, Replica as ReplicaConfig
from router.fleet.defaults import Defaults
from router.fleet.listed import ANY, served, served_text
from router.fleet.replica import Replica

Unknown = Literal["reject", "forward"] | None


@pytest.mark.parametrize(
    ("configured", "unknown", "learned", "expected"),
    [
        (None, None, None, None),
        (None, None, {"m"}, {"m"}),
        (None, None, set(), set()),
        (("a",), None, None, {"a"}),
        (("a",), None, {"m"}, {"a"}),  # the operator's list replaces the engine's
        (("a", ANY), None, None, {"a", ANY}),
        (("a", ANY), None, {"m"}, {"a", "m", ANY}),
        ((ANY,), None, {"m"}, {"m", ANY}),
        (None, "forward", None, {ANY}),
        (None, "forward", {"m"}, {"m", ANY}),
        (("a",), "forward", {"m"}, {"a", ANY}),
        (None, "reject", None, None),  # the models are unknown, not none
        (None, "reject", {"m", ANY}, {"m"}),
        (("a", ANY), "reject", {"m"}, {"a", "m"}),
        ((), None, {"m"}, set()),
    ],
)
def test_the_models_of_a_replica(
    configured: tuple[str, ...] | None,
    unknown: Unknown,
    learned: set[str] | None,
    expected: set[str] | None,
) -> None:
    config = Config(url="http://a:1", id="a", models=configured, unknown_models=unknown)
    found = served(config, None if learned is None else frozenset(learned))
    assert found == (None if expected is None else frozenset(expected))


def test_names_are_sorted_and_the_wildcard_is_no_name() -> None:
    assert served_text(["m", ANY, "a"], None) == "; served here: `a`, `m`"


@pytest.mark.parametrize(("listed", "models"), [([], None), ([ANY], None), (["m"], set[str]())])
def test_nothing_is_said_where_there_is_nothing_to_name(
    listed: list[str], models: set[str] | None
) -> None:
    assert served_text(listed, models) == ""


def test_a_long_list_is_cut_and_counted() -> None:
    names = [f"m{n:02}" for n in range(23)]
    assert "and" not in served_text(names[:20], None)
    text = served_text(reversed(names), None)
    assert text.endswith("`m18`, `m19` and 3 more")
    assert "m20" not in text


def replica(
    name: str,
    *listed: str,
    adapters: tuple[str, ...] = (),
    engine: str | None = None,
    **config: Any,
) -> Replica:
    """A replica that has listed these models; without names it has no list."""
    made = Replica(ReplicaConfig(url=f"http://{name}:1", id=name, **config), Health(), None)
    made.engine = engine
    if listed:
        made.listed.names = frozenset(listed)
        made.models = served(made.config, made.listed.names)
        made.listed.adapters = frozenset(adapters)
    return made


def table(*replicas: Replica) -> Defaults:
    return Defaults({each.id: each for each in replicas})


@pytest.mark.parametrize(
    ("made", "own"),
    [
        (replica("r", "base", "lora", adapters=("lora",)), {"base"}),
        (replica("r", "base", "alias"), {"base", "alias"}),
        (replica("r", "base", models=("gpt",)), {"gpt"}),
        (replica("r", "base", "lora", adapters=("lora",), models=("lora",)), {"base"}),
        (replica("r", "base", unknown_models="forward"), {"base"}),
        (replica("r", models=("m", "*")), {"m"}),
    ],
)
def test_a_replicas_own_model(made: Replica, own: set[str]) -> None:
    for model in made.models or ():
        assert table(made).of(model) == [("", own, made.listed.adapters)]


@pytest.mark.parametrize("made", [replica("r"), replica("r", unknown_models="forward")])
def test_what_nobody_knows(made: Replica) -> None:
    assert list(table(made).of(None)) == list(table(made).of("m")) == []


def test_a_pool_has_an_entry_for_each_kind_of_replica() -> None:
    found = table(
        replica("a", "m", "x", engine="sglang"),
        replica("b", "m", "x", engine="sglang"),
        replica("c", "m", engine="tgi"),
        replica("d", "n", engine="tgi"),
    )
    both = frozenset({"m", "x"})
    first = ("sglang", both, frozenset())
    assert found.of("x") == [first]
    assert found.of("m") == [first, ("tgi", {"m"}, frozenset())]
    assert len(found.of(None)) == 3
    assert list(found.of("unknown")) == []


def test_it_follows_what_is_learned() -> None:
    one = replica("a", "base", "lora")
    found = table(one)
    assert found.of("lora") == [("", {"base", "lora"}, frozenset())]
    one.engine = "sglang"
    one.listed.adapters = frozenset({"lora"})
    found.changed()
    assert found.of("lora") == [("sglang", {"base"}, {"lora"})]
    one.models = one.listed.names = frozenset({"base"})
    found.changed()
    assert list(found.of("lora")) == []


def test_a_large_fleet_is_built_once_for_each_list() -> None:
    names = [f"m{n}" for n in range(500)]
    replicas = [replica(f"r{n}", *names) for n in range(50)]
    found = table(*replicas)
    assert len(found.of("m7")) == 1
    assert found.of("m7") is found.of("m7")
