"""Closes the tables of the tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.fleet.helpers import Table


@pytest.fixture(autouse=True)
def _closes_tables() -> Iterator[None]:
    yield
    for table in [*Table.open]:
        table.close()


@pytest.fixture
def table() -> Table:
    return Table()
