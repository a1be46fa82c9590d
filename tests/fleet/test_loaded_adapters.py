"""The adapters in a replica's memory."""

from __future__ import annotations

from router.fleet.adapters import NAME_CHARS, SLOTS_MOST, LoadedAdapters


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
