"""Changes of members while the new process takes over: refused, and never lost."""

from __future__ import annotations

import pytest

from router.app.restart.handover import Handover
from router.app.restart.messages import Begin, FleetState
from router.app.restart.notify import Notifier
from router.app.restart.successor import RestartFailed
from tests.harness.behaviours import json_ok
from tests.harness.replica import eventually
from tests.harness.running import Router, running, scenario

CHANGES = [
    ("/replicas", "POST", {"url": "http://127.0.0.1:9", "id": "extra"}),
    ("/replicas/r0", "DELETE", None),
    ("/replicas/r0/cordon", "POST", None),
    ("/replicas/r0/reclaim", "POST", {"seconds": 60}),
]


class NewProcess:
    """Stands for the new process: the operator changes members when it gets the last state."""

    pid = 1

    def __init__(self, router: Router) -> None:
        self.router = router
        self.statuses: list[int] = []
        self.is_abandoned = False

    async def start(self, begin: Begin) -> NewProcess:
        return self

    async def prepared(self) -> None:
        assert (await self.router.admin("/replicas/r1/cordon", "POST")).status == 200

    async def go(self, fleet: FleetState) -> list[int]:
        assert "r1" in fleet.duties
        for path, method, body in CHANGES:
            self.statuses.append((await self.router.admin(path, method, body=body)).status)
        assert (await self.router.admin("/replicas/r0", "GET")).status == 200
        raise RestartFailed("for this test")

    async def abandon(self) -> None:
        self.is_abandoned = True


@scenario
async def test_a_change_after_the_last_state_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(json_ok, json_ok) as router:
        new = NewProcess(router)
        monkeypatch.setattr("router.app.restart.handover.Successor", new)
        handover = Handover(router.app, Notifier({}))
        handover.begin()
        await eventually(lambda: handover._task is None, "the end of the restart")
        assert new.is_abandoned
        assert new.statuses == [503] * len(CHANGES)
        assert list(router.app.parts.fleet.replicas) == ["r0", "r1"]
        # The restart has failed, so this process goes on.
        assert (await router.admin("/replicas/r1/uncordon", "POST")).status == 200
