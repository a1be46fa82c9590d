"""The context lengths of replicas, and the length that a request needs at least."""

from typing import Any

import pytest

from policies.allowed import Allowed
from policies.facts import RequestView
from router.fleet.context import (
    TOO_LONG,
    UNKNOWN,
    ContextLengths,
    ContextLevels,
    lengths_of,
    read_lengths,
)
from router.fleet.prefix.token_ratio import TokenRatio

BASE = {"id": "m", "max_model_len": 4096, "parent": None}
ADAPTER = {"id": "sql", "max_model_len": None, "parent": "m"}


def read(*entries: dict[str, Any]) -> ContextLengths:
    return read_lengths({entry["id"]: entry for entry in entries})


def test_an_adapter_has_the_length_of_its_model() -> None:
    found = read(BASE, {"id": "n", "max_model_len": 512}, ADAPTER)
    assert [found.of(name) for name in ("m", "n", "sql", "unlisted", None)] == [
        *(4096, 512, 4096),
        *(0, 0),
    ]


def test_one_length_applies_to_all_names() -> None:
    found = read(BASE, ADAPTER)
    assert found == ContextLengths({}, 4096)
    assert found.of("unlisted") == found.of(None) == 4096


def test_a_configured_length_replaces_the_reported_one() -> None:
    assert lengths_of(1024, read(BASE)) == ContextLengths({}, 1024)
    assert lengths_of(None, read(BASE)) == read(BASE)


@pytest.mark.parametrize("parent", [None, "gone", 7])
def test_a_length_that_nobody_reports_is_unknown(parent: object) -> None:
    found = read({"id": "m", "parent": parent})
    assert found == UNKNOWN
    assert found.fits("m", 10**9)


def test_the_length_is_the_most_that_fits() -> None:
    assert read(BASE).fits("m", 4096)
    assert not read(BASE).fits("m", 4097)


MOST = TokenRatio.MOST  # bytes per token that are assumed before anything was learned


def levels_of(*lengths: int, ratio: TokenRatio | None = None) -> ContextLevels:
    """The levels of a fleet of one model; 0: the length of a replica is unknown."""
    found = ContextLevels(lambda _: lengths, ratio or TokenRatio())
    known = {number: (ContextLengths({}, each), None) for number, each in enumerate(lengths)}
    found.rebuilt(known)
    return found


def view_of(tokens: int = 0, output: int = -1) -> RequestView:
    """A request whose prompt has at least `tokens` tokens."""
    view = RequestView("chat", "m", output_limit=output)
    view.bounded_bytes = int(tokens * MOST)
    return view


@pytest.mark.parametrize(
    ("lengths", "tokens", "context"),
    [
        ((1000, 4000), 1000, 0),
        ((1000, 4000), 1001, 4000),
        ((1000, 4000), 4000, 4000),
        ((1000, 4000), 4001, 0),  # no replica is long enough, so an engine answers
        ((1000, 2000, 4000), 1500, 2000),
        ((1000, 2000, 4000), 2001, 4000),
        ((1000, 1000), 9000, 0),
        ((1000, 0), 999, 0),
        ((1000, 0), 1001, 1001),  # only the replica of an unknown length
        ((0, 0), 10**9, 0),
    ],
)
def test_the_next_length_is_needed(lengths: tuple[int, ...], tokens: int, context: int) -> None:
    levels = levels_of(*lengths)
    limited = levels.limited(view_of(tokens), "m")
    assert (limited.context if limited is not None else 0) == context
    assert (levels.needed(view_of(tokens), "m") == TOO_LONG) == (
        lengths[0] == 1000 and tokens == 4001
    )


def test_prompt_and_answer_count_together() -> None:
    levels = levels_of(1000, 4000)
    assert levels.limited(view_of(600, 400), "m") is None
    assert levels.limited(view_of(600, 401), "m") == Allowed(None, 4000)
    assert levels.limited(view_of(0, 1001), "m") == Allowed(None, 4000)


def test_the_margin_is_the_largest_ratio_seen() -> None:
    ratio = TokenRatio()
    levels = levels_of(1000, 4000, ratio=ratio)
    view = RequestView("chat", "m")
    view.bounded_bytes = 8000
    assert levels.limited(view, "m") is None, "8,000 bytes may be 500 tokens"
    for _ in range(1000):
        ratio.learn("m", 4000, 1000)
    assert levels.limited(view, "m") == Allowed(None, 4000)
    ratio.learn("m", 9000, 1000)
    assert levels.limited(view, "m") is None, "a prompt with 9 bytes per token was seen"
    assert levels.limited(view, "other") is None


def test_a_request_that_generates_nothing_has_no_limit() -> None:
    view = view_of(2000)
    view.decodes = False
    assert levels_of(1000, 4000).limited(view, "m") is None


def test_the_version_changes_with_the_lengths() -> None:
    levels = levels_of(1000, 4000)
    version = levels.version
    known = {0: (ContextLengths({}, 1000), None), 1: (ContextLengths({}, 4000), None)}
    levels.rebuilt(known)
    assert levels.version == version and levels.is_used
    levels.rebuilt({0: known[0]})
    assert levels.version > version and not levels.is_used
    assert levels.limited(view_of(2000), "m") is None


def test_names_from_clients_are_bounded() -> None:
    levels = levels_of(1000, 4000)
    for number in range(5000):
        levels.limited(view_of(2000), f"m{number}")
    assert len(levels._levels) <= 1024
