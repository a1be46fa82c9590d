"""Helpers of the tests of the fleet's table."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from router.core.errors import Reason, RouterError
from router.fleet.replica import Replica
from tests.fleet.helpers import Table


def refusal(call: Callable[[], Any]) -> RouterError:
    with pytest.raises(RouterError) as refused:
        call()
    return refused.value


def eject(table: Table, replica: Replica) -> None:
    for _ in range(table.rules.eject_after):
        table.fleet.outcomes.failed(replica, Reason.REPLICA_RESET)


def listed(table: Table) -> list[dict[str, Any]]:
    """The entries of /v1/models."""
    entries: list[dict[str, Any]] = json.loads(table.fleet.listing.of(None).whole)["data"]
    return entries


def take_down(table: Table, replica: Replica) -> None:
    for _ in range(table.rules.fall):
        table.fleet.probes.probed(replica, False)


def listing(*names: str) -> dict[str, dict[str, Any]]:
    return {name: {"id": name, "object": "model", "owned_by": "engine"} for name in names}
