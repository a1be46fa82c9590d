"""No file descriptor for a replica connection: 503, and no failure of the replica is counted."""

from router.core.errors import Reason
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.replica import eventually
from tests.harness.running import Router, assert_error, no_files_left, routed


@routed(json_ok, json_ok, health={"eject_after": 1})
async def test_it_is_our_shortage(router: Router) -> None:
    clients = [await router.client() for _ in range(3)]
    await eventually(lambda: router.busy().get("clients") == 3, "three accepted clients")
    with no_files_left():
        for client in clients:
            await client.send(chat())
            assert_error(await client.recv_response(), Reason.NO_FILES)
    for _ in range(2):
        assert (await router.ask(chat())).status == 200
    reasons = [line["reason"] for line in await router.log(5)]
    assert reasons == ["no_files"] * 3 + ["ok"] * 2
