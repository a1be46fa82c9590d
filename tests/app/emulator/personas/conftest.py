"""One emulated fleet per persona, each in its own process, idle at the start of each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.app.emulator.conftest import Fleet, checked, started

CHAT = [{"role": "user", "content": "Tell me of the fox."}]


def sessions(*options: str) -> Any:
    """A fixture of a fleet that lives as long as the tests of one file."""

    @pytest.fixture(scope="module")
    def fleet() -> Iterator[Fleet]:
        yield from started(*options)

    return fleet


def clean(fleet: Fleet) -> Iterator[Fleet]:
    yield from checked(fleet)


def samples(text: str) -> dict[str, float]:
    """Every sample of an exposition, by name and labels as written."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            assert name not in found, f"told twice: {name}"
            found[name] = float(value)
    return found
