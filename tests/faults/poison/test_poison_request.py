"""A request that every replica answers with 500 must not be retried on the whole fleet."""

from tests.harness.behaviours import answer, answer_by, chat_either
from tests.harness.messages import chat, json_response
from tests.harness.running import Router, routed

BROKEN = {"error": {"message": "broken", "type": "server_error", "param": None, "code": 500}}


fails_on_poison = answer_by(
    lambda asked: json_response(BROKEN, 500) if b"poison" in asked.body else json_response({})
)


@routed(*[fails_on_poison] * 3, health={"eject_after": 5}, policy="round_robin", virtual=True)
async def test_at_most_one_other_attempt_and_no_cascade(router: Router) -> None:
    found = await router.ask(chat(user="poison"))
    assert found.status == 500
    assert found.json() == BROKEN
    assert sum(len(replica.requests) for replica in router.replicas) <= 2
    for _ in range(6):
        assert (await router.ask(chat())).status == 200
    assert all(len(replica.requests) >= 2 for replica in router.replicas)


@routed(answer(json_response(BROKEN, 400)), chat_either, policy="round_robin", virtual=True)
async def test_a_client_error_of_the_engine_is_never_retried(router: Router) -> None:
    statuses = sorted([(await router.ask(chat())).status for _ in range(2)])
    assert statuses == [200, 400]
