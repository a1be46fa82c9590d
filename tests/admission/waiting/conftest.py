"""Closes the tables of the tests of this folder that run over several routers."""

from tests.fleet.conftest import _closes_tables as _closes_tables
