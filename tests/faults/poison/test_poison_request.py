"""A request that every replica answers with 500 must not be retried on the whole fleet."""

from tests.harness.behaviours import answer, chat_either
from tests.harness.messages import chat, json_response
from tests.harness.replica import ReplicaConnection
from tests.harness.running import running, virtual_scenario

BROKEN = {"error": {"message": "broken", "type": "server_error", "param": None, "code": 500}}


async def fails_on_poison(connection: ReplicaConnection) -> None:
    while asked := await connection.recv_request():
        poison = b"poison" in asked.body
        await connection.send(json_response(BROKEN, 500) if poison else json_response({}))


@virtual_scenario
async def test_at_most_one_other_attempt_and_no_cascade() -> None:
    fleet = [fails_on_poison] * 3
    async with running(*fleet, health={"eject_after": 5}, policy="round_robin") as router:
        answer = await router.ask(chat(user="poison"))
        assert answer.status == 500
        assert answer.json() == BROKEN
        assert sum(len(replica.requests) for replica in router.replicas) <= 2
        for _ in range(6):
            assert (await router.ask(chat())).status == 200
        assert all(len(replica.requests) >= 2 for replica in router.replicas)


@virtual_scenario
async def test_a_client_error_of_the_engine_is_never_retried() -> None:
    refuses = answer(json_response(BROKEN, 400))

    async with running(refuses, chat_either, policy="round_robin") as router:
        statuses = sorted([(await router.ask(chat())).status for _ in range(2)])
        assert statuses == [200, 400]
