"""What a new process learns about the fleet: added replicas, cordons, reclaims."""

from router.app.restart.fleet_state import state_of
from router.app.restart.messages import Begin, FleetState, Reclaimed, line, read
from router.fleet.membership import Duty
from router.fleet.notice import Notice
from tests.harness.behaviours import json_ok
from tests.harness.replica import HostileReplica, eventually
from tests.harness.running import Router, running, scenario


def passed_on(state: FleetState) -> FleetState:
    """The state as the new process reads it."""
    return read(line(Begin((), state, ())), Begin).fleet


def duty_of(router: Router, name: str = "r0") -> int:
    return router.app.parts.fleet.replicas[name].standing.duty


def adopted(router: Router, state: FleetState) -> None:
    router.app.adopt_fleet(passed_on(state))


@scenario
async def test_the_state_is_the_same_in_the_new_process() -> None:
    extra = HostileReplica(json_ok)
    extra.start()
    async with running(json_ok, json_ok) as old, running(json_ok, json_ok) as new:
        await old.admin("/replicas", "POST", body={"url": extra.url, "id": "extra", "weight": 2})
        await old.admin("/replicas/r0/cordon", "POST")
        await old.admin("/replicas/r1/reclaim", "POST", body={"seconds": 100})
        state = state_of(old.app.parts)
        adopted(new, state)
        adopted(new, state)
        replicas = new.app.parts.fleet.replicas
        assert list(replicas) == ["r0", "r1", "extra"]
        assert replicas["extra"].config == old.app.parts.fleet.replicas["extra"].config
        assert [r.standing.duty for r in replicas.values()] == [
            Duty.CORDONED,
            Duty.DRAINING,
            Duty.IN_SERVICE,
        ]
        left = new.app.parts.reclaims.seconds_left(replicas["r1"])
        assert left is not None
        assert 0 < left <= 100
        assert new.app.parts.reclaims.notices["admin"] == 1
        # The machine's return gives it the duty that it had before the notice.
        assert new.app.parts.reclaims.duty_before(replicas["r1"]) == Duty.IN_SERVICE
        await eventually(lambda: replicas["extra"].health.up, "a probe of the added replica")
    await extra.stop()


@scenario
async def test_later_changes_are_applied() -> None:
    """The operator may change members while the new process prepares."""
    async with running(json_ok, json_ok) as router:
        url = "http://127.0.0.1:9"
        await router.admin("/replicas", "POST", body={"url": url, "id": "extra"})
        await router.admin("/replicas/r0/cordon", "POST")
        adopted(router, FleetState(duties={"r1": Duty.DRAINING}))
        replicas = router.app.parts.fleet.replicas
        assert list(replicas) == ["r0", "r1"]
        assert [r.standing.duty for r in replicas.values()] == [Duty.IN_SERVICE, Duty.DRAINING]
        assert router.app.parts.origins.added == {}
        adopted(router, FleetState())


@scenario
async def test_a_notice_that_ends_before_the_new_process_accepts() -> None:
    async with running(json_ok, json_ok) as router:
        reclaims, replicas = router.app.parts.reclaims, router.app.parts.fleet.replicas
        passed = {name: Reclaimed(100.0, ("gcp",)) for name in ("r0", "r1")}
        adopted(router, FleetState(reclaims=passed))
        reclaims.noticed(Notice("a", 60.0, ("r1",)), "gcp")
        adopted(router, FleetState(duties={"r0": Duty.CORDONED}))
        assert [r.standing.duty for r in replicas.values()] == [Duty.CORDONED, Duty.DRAINING]
        assert reclaims.seconds_left(replicas["r0"]) is None


@scenario
async def test_the_file_has_priority() -> None:
    async with running(json_ok) as old, running(json_ok) as new:
        own = new.config.replicas[0]
        state = state_of(old.app.parts)
        assert state == FleetState()
        adopted(new, FleetState(added=(own,)))
        assert new.app.parts.origins.added == {}
