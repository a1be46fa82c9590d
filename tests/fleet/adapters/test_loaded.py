"""The adapters in a replica's memory."""

from __future__ import annotations

from router.fleet.adapters.loaded import LoadedAdapters


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


def test_it_is_full_when_another_adapter_replaces_one() -> None:
    assert not loaded("a").is_full
    assert loaded("a", "b").is_full


def test_running_adapters_count_as_used() -> None:
    adapters = loaded("a", "b")
    adapters.reported({"a"}, 2)
    adapters.use("c")
    assert held(adapters) == "ac"


def test_fewer_slots_keep_the_newest() -> None:
    adapters = loaded("a", "b")
    adapters.reported((), None)
    assert held(adapters) == "ab"
    adapters.reported((), 1)
    assert held(adapters) == "b"


def test_a_restart_empties_the_memory() -> None:
    adapters = loaded("a", "b")
    adapters.clear()
    assert held(adapters) == ""
