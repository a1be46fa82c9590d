"""A replica that accepts and closes at once: nothing was executed, so another attempt is safe."""

from __future__ import annotations

from router.core.errors import Reason
from tests.harness.behaviours import in_turn, json_ok, rst_unread
from tests.harness.messages import chat, completion
from tests.harness.replica import ReplicaConnection
from tests.harness.running import assert_error, running, scenario


@scenario
async def test_a_new_connection_is_followed_by_another_replica() -> None:
    behave = in_turn(rst_unread, then=json_ok)
    async with running(behave, behave) as router:
        assert (await router.ask(chat())).status == 200
        (line,) = await router.log()
        assert (line["reason"], line["attempts"]) == ("ok", 2)


@scenario
async def test_every_replica_does_it() -> None:
    async with running(rst_unread, rst_unread) as router:
        assert_error(await router.ask(chat()), Reason.REPLICA_RESET)
        (line,) = await router.log()
        assert line["reason"] == "replica_reset"
        assert line["attempts"] == 2


@scenario
async def test_a_reused_connection_is_replaced_silently() -> None:
    async def once(connection: ReplicaConnection) -> None:
        assert await connection.recv_request()
        await connection.send(completion())
        assert await connection.recv_head()
        connection.rst()

    async with running(in_turn(once, then=json_ok)) as router:
        assert (await router.ask(chat())).status == 200
        assert (await router.ask(chat())).status == 200
        assert len(router.replica.sessions) == 2
