"""The context lengths of one replica's models."""

from __future__ import annotations

from typing import Any

import pytest

from router.fleet.context import UNKNOWN, ContextLengths, lengths_of, read_lengths

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
