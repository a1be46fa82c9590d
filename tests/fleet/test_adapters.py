"""The model names that mean adapters, and the adapters in a replica's memory."""

from typing import Any

import pytest

from router.config.load import parse
from router.fleet.adapters import NAME_CHARS, SLOTS_MOST, LoadedAdapters
from router.fleet.names import Names
from router.fleet.signals import Signals
from tests.fleet.helpers import Table

BASE: dict[str, Any] = {"id": "m", "parent": None}


def entries(*adapters: str) -> dict[str, dict[str, Any]]:
    return {"m": BASE, **{name: {"id": name, "parent": "m"} for name in adapters}}


def test_an_adapter_is_served_by_the_replicas_that_list_it(table: Table) -> None:
    a, b = table.add("a", None), table.add("b", None)
    fleet = table.fleet
    assert not fleet.adapter_names.is_used
    fleet.probes.learned(a, entries("sql"))
    fleet.probes.learned(b, entries())
    assert fleet.serving.of("sql", None) == (a,)
    assert fleet.serving.of("m", None) == (a, b)
    assert [fleet.adapter_names.of(name) for name in ("sql", "m", None)] == ["sql", "", ""]
    fleet.probes.learned(a, entries())
    assert not fleet.adapter_names.is_used


def test_a_pool_and_an_adapter(table: Table) -> None:
    a = table.add("a", None, pool="p")
    fleet = table.fleet
    fleet.probes.learned(a, entries("sql"))
    sections = {"models": {"s": {"targets": [{"model": "sql", "pool": "p"}]}}, "pools": {"p": {}}}
    fleet.adopt_names(Names(parse("", sections, serves=False)))
    assert fleet.adapter_names.of("sql@p") == "sql"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_adapter_with_its_model(engine: str, table: Table) -> None:
    """SGLang's clients write `model:adapter`; vLLM knows no such name."""
    a, b = (table.add(id, None, engine=engine) for id in "ab")
    fleet = table.fleet
    fleet.probes.learned(a, entries("sql"))
    fleet.probes.learned(b, entries())
    is_known = engine == "sglang"
    assert fleet.models.routed("m:sql") == ("sql" if is_known else "m:sql")
    assert fleet.models.routed("m:fr") == ("m" if is_known else "m:fr")
    assert fleet.models.routed("n:sql") == "n:sql"
    assert fleet.serving.of(fleet.models.routed("m:sql"), None) == ((a,) if is_known else ())


def test_polls_and_restarts_change_what_is_loaded(table: Table) -> None:
    a = table.add("a", None)
    fleet = table.fleet
    fleet.probes.learned(a, entries("sql", "fr"))
    first = Signals(adapters=frozenset({"sql"}), adapter_slots=1, generated_tokens=9)
    fleet.polls.observed(a, first, 1, 1.0)
    assert a.loaded_adapters.holds("sql") and a.loaded_adapters.is_full
    fleet.polls.observed(a, Signals(adapter_slots=1, generated_tokens=1), 2, 2.0)
    assert not a.loaded_adapters.holds("sql")
    a.loaded_adapters.use("fr")
    fleet.polls.observed(a, Signals(asleep=True, generated_tokens=1), 3, 3.0)
    assert not a.loaded_adapters.holds("fr")


def loaded(*used: str, slots: int = 2) -> LoadedAdapters:
    found = LoadedAdapters()
    found.reported((), slots)
    for name in used:
        found.use(name)
    return found


def held(adapters: LoadedAdapters, names: str = "abcd") -> str:
    return "".join(name for name in names if adapters.holds(name))


def test_the_least_recently_used_adapter_is_replaced() -> None:
    assert held(loaded("a", "b", "c")) == "bc"
    assert held(loaded("a", "b", "a", "c")) == "ac"


def test_running_adapters_count_as_used() -> None:
    adapters = loaded("a", "b")
    adapters.reported({"a"}, 2)
    adapters.use("c")
    assert held(adapters) == "ac"


def test_memory_is_bounded_whatever_the_engine_reports() -> None:
    adapters = loaded(slots=10**12 - 1)
    names = [f"{number:05}" for number in range(SLOTS_MOST + 2)]
    adapters.reported(names[:-1], 10**12 - 1)
    adapters.use(names[-1])
    assert [adapters.holds(name) for name in names] == [False] * 2 + [True] * SLOTS_MOST
    assert adapters.is_full
    longest = "x" * NAME_CHARS
    adapters.reported({longest, longest + "x"}, None)
    assert adapters.holds(longest) and not adapters.holds(longest + "x")


def test_fewer_slots_keep_the_newest() -> None:
    adapters = loaded("a", "b")
    adapters.reported((), None)
    assert held(adapters) == "ab"
    adapters.reported((), 1)
    assert held(adapters) == "b"
