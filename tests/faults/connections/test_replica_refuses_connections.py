"""A replica whose port is closed: another one serves, and no client sees an error."""

from router.core.errors import Reason
from tests.harness.behaviours import json_ok
from tests.harness.listeners import dead_url
from tests.harness.messages import chat
from tests.harness.running import assert_error, running, virtual_scenario


@virtual_scenario
async def test_the_next_replica_is_tried() -> None:
    async with running(dead_url(), json_ok, policy="round_robin") as router:
        for _ in range(4):
            assert (await router.ask(chat())).status == 200
        lines = await router.log(4)
        assert {line["reason"] for line in lines} == {"ok"}
        assert all(line["attempts"] in (1, 2) for line in lines)
        assert len(router.replica.requests) == 4


@virtual_scenario
async def test_a_replica_found_dead_is_left_alone() -> None:
    async with running(
        dead_url(), json_ok, health={"eject_after": 2}, policy="round_robin"
    ) as router:
        for _ in range(12):
            assert (await router.ask(chat())).status == 200
        lines = await router.log(12)
        assert all(line["attempts"] == 1 for line in lines[-4:])


@virtual_scenario
async def test_all_refuse() -> None:
    async with running(dead_url(), dead_url(), dead_url()) as router:
        answer = await router.ask(chat())
        assert answer.status == 503
        assert answer.error()["code"] in ("connect_failed", "no_replica")
        assert int(answer.header("retry-after") or "0") > 0
        (line,) = await router.log()
        assert line["attempts"] <= router.config.retry.attempts
        assert line["reason"] == answer.error()["code"]


@virtual_scenario
async def test_all_are_known_to_be_down() -> None:
    async with running(dead_url(), dead_url()) as router:
        answer = await router.ask(chat())
        while answer.error()["code"] != "no_replica":  # until the probes of the replica have failed
            assert_error(answer, Reason.CONNECT_FAILED)
            answer = await router.ask(chat())
        assert_error(answer, Reason.NO_REPLICA)
        assert int(answer.header("retry-after") or "0") > 0
