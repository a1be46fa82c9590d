"""A replica's models, from the configuration and the engine's list, and their names in errors."""

from __future__ import annotations

from typing import Literal

import pytest

from router.config.model import Replica as Config
from router.fleet.listed import ANY, served, served_text

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
