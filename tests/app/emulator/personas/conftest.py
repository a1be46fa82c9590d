"""One emulated fleet per persona, each in its own process, idle at the start of each test."""

from collections.abc import Iterator

import pytest

from tests.app.emulator.conftest import Fleet, started


@pytest.fixture(scope="module")
def _fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """The engines of one file, with the flags in its `OPTIONS`."""
    yield from started(*request.module.OPTIONS)


def samples(text: str) -> dict[str, float]:
    """Every sample of an exposition, by name and labels as written."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            assert name not in found, f"told twice: {name}"
            found[name] = float(value)
    return found
