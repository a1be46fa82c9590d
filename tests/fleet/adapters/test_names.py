"""The model names that mean adapters."""

from __future__ import annotations

from typing import Any

import pytest

from router.config.load import parse
from router.fleet.names import Names
from router.fleet.signals import Signals
from tests.fleet.helpers import Table
from tests.harness.running import scenario

BASE: dict[str, Any] = {"id": "m", "parent": None}


def entries(*adapters: str) -> dict[str, dict[str, Any]]:
    return {"m": BASE, **{name: {"id": name, "parent": "m"} for name in adapters}}


@scenario
async def test_an_adapter_is_served_by_the_replicas_that_list_it() -> None:
    table = Table()
    a, b = table.add("a", None), table.add("b", None)
    fleet = table.fleet
    assert not fleet.adapter_names.is_used
    fleet.learned(a, entries("sql"))
    fleet.learned(b, entries())
    assert fleet.serving("sql", None) == (a,)
    assert fleet.serving("m", None) == (a, b)
    assert [fleet.adapter_names.of(name) for name in ("sql", "m", None)] == ["sql", "", ""]
    fleet.learned(a, entries())
    assert not fleet.adapter_names.is_used
    table.close()


@scenario
async def test_a_pool_and_an_adapter() -> None:
    table = Table()
    a = table.add("a", None, pool="p")
    fleet = table.fleet
    fleet.learned(a, entries("sql"))
    sections = {"models": {"s": {"targets": [{"model": "sql", "pool": "p"}]}}, "pools": {"p": {}}}
    fleet.adopt_names(Names(parse("", sections, serves=False)))
    assert fleet.adapter_names.of("sql@p") == "sql"
    table.close()


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@scenario
async def test_an_adapter_with_its_model(engine: str) -> None:
    """SGLang's clients write `model:adapter`; vLLM knows no such name."""
    table = Table()
    a, b = (table.add(id, None, engine=engine) for id in "ab")
    fleet = table.fleet
    fleet.learned(a, entries("sql"))
    fleet.learned(b, entries())
    is_known = engine == "sglang"
    assert fleet.routed("m:sql") == ("sql" if is_known else "m:sql")
    assert fleet.routed("m:fr") == ("m" if is_known else "m:fr")
    assert fleet.routed("n:sql") == "n:sql"
    assert fleet.serving(fleet.routed("m:sql"), None) == ((a,) if is_known else ())
    table.close()


@scenario
async def test_polls_and_restarts_change_what_is_loaded() -> None:
    table = Table()
    a = table.add("a", None)
    fleet = table.fleet
    fleet.learned(a, entries("sql", "fr"))
    first = Signals(adapters=frozenset({"sql"}), adapter_slots=1, generated_tokens=9)
    fleet.observed(a, first, 1, 1.0)
    assert a.loaded_adapters.holds("sql") and a.loaded_adapters.is_full
    fleet.observed(a, Signals(adapter_slots=1, generated_tokens=1), 2, 2.0)
    assert not a.loaded_adapters.holds("sql")
    a.loaded_adapters.use("fr")
    fleet.observed(a, Signals(asleep=True, generated_tokens=1), 3, 3.0)
    assert not a.loaded_adapters.holds("fr")
    table.close()
