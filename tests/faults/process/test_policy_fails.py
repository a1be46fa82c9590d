"""A routing policy that raises, is slow or returns an invalid pick causes no error at a client."""

import json
import os
import time
from pathlib import Path

import pytest

import policies.contract as contract
from policies.contract import Candidate, Pick, RoutingPolicy
from router.observe import events
from tests.faults.process.metrics import number
from tests.harness.behaviours import json_ok, rst_after_request
from tests.harness.messages import chat
from tests.harness.running import running, scenario

ERRORS = "hedgerow_policy_errors_total"


class Raises(RoutingPolicy):
    def pick(self, view, candidates, ctx):  # type: ignore[no-untyped-def]
        raise RuntimeError("a policy with a bug")


class Stranger(RoutingPolicy):
    def pick(self, view, candidates, ctx):  # type: ignore[no-untyped-def]
        return Pick(Candidate("nobody"), "nonsense")


class Double(RoutingPolicy):
    """A policy that picks a different object with the name of an existing replica."""

    def pick(self, view, candidates, ctx):  # type: ignore[no-untyped-def]
        return Pick(Candidate(candidates[0].id), "nonsense")


class Nothing(RoutingPolicy):
    def pick(self, view, candidates, ctx):  # type: ignore[no-untyped-def]
        return None


class Empty(RoutingPolicy):
    def pick(self, view, candidates, ctx):  # type: ignore[no-untyped-def]
        return Pick(None, "nothing")


class Deaf(RoutingPolicy):
    """A policy that raises in the fleet hook."""

    def pick(self, view, candidates, ctx):  # type: ignore[no-untyped-def]
        return Pick(candidates[0], "first")

    def on_fleet_change(self, replica_ids: frozenset[str]) -> None:
        raise RuntimeError("a policy with a bug")


class Slow(RoutingPolicy):
    def pick(self, view, candidates, ctx):  # type: ignore[no-untyped-def]
        time.sleep(0.05)
        return Pick(candidates[-1], "late")


BROKEN = [Raises, Stranger, Double, Nothing, Empty]


@pytest.mark.parametrize("broken", BROKEN)
@scenario
async def test_a_fallback_serves(
    broken: type[RoutingPolicy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(contract.ROUTING.classes, "broken", broken)
    async with running(json_ok, json_ok, policy="broken") as router:
        assert await number(router.app.admin_port, ERRORS) == 0
        for _ in range(5):
            assert (await router.ask(chat())).status == 200
        assert {line["reason"] for line in await router.log(5)} == {"ok"}
        assert await number(router.app.admin_port, ERRORS) == 5


@scenario
async def test_a_retry_falls_back_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(contract.ROUTING.classes, "broken", Raises)
    health = {"eject_after": 1000}
    fleet = [rst_after_request, json_ok, json_ok]
    async with running(*fleet, policy="broken", health=health) as router:
        for _ in range(30):
            assert (await router.ask(chat())).status == 200
        lines = await router.log(30)
        picks = sum(line["attempts"] for line in lines)
        assert picks > 30, "the fallback never met the bad replica"
        assert await number(router.app.admin_port, ERRORS) == picks


@pytest.mark.parametrize("broken", BROKEN)
def test_it_is_said_once_a_minute(
    broken: type[RoutingPolicy], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(contract.ROUTING.classes, "broken", broken)
    said = tmp_path / "events"
    fd = os.open(said, os.O_WRONLY | os.O_CREAT)
    handler = events.install(fd)

    @scenario
    async def ask_often() -> None:
        async with running(json_ok, json_ok, policy="broken") as router:
            client = await router.client()
            for _ in range(200):
                await client.send(chat())
                assert (await client.recv_response()).status == 200

    try:
        ask_often()
    finally:
        events.uninstall(handler)
        os.close(fd)
    lines = [json.loads(line) for line in said.read_text().splitlines()]
    (failed,) = [line for line in lines if line["message"] == "the routing policy failed"]
    assert failed["policy"] == broken.__name__
    assert len(lines) == len({line["message"] for line in lines}), lines


@scenario
async def test_one_that_cannot_hear_of_the_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(contract.ROUTING.classes, "broken", Deaf)
    async with running(json_ok, json_ok, policy="broken") as router:
        for _ in range(3):
            assert (await router.ask(chat())).status == 200
        assert len(router.replica.requests) == 3  # the policy's choice is still used
        assert await number(router.app.admin_port, ERRORS) >= 1


@scenario
async def test_a_slow_one_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy's choice is synchronous: the loop is blocked in the meantime, and nothing is
    lost.
    """
    monkeypatch.setitem(contract.ROUTING.classes, "slow", Slow)
    async with running(json_ok, json_ok, policy="slow") as router:
        clients = [await router.send(chat()) for _ in range(10)]
        for client in clients:
            assert (await client.recv_response()).status == 200
        assert len(router.replicas[1].requests) == 10
        assert {line["reason"] for line in await router.log(10)} == {"ok"}
        assert await number(router.app.admin_port, ERRORS) == 0
