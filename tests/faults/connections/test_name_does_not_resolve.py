"""A replica whose name has no address is treated as unreachable."""

from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.running import Router, routed

NOWHERE = "http://no-such-replica.invalid:8000"  # RFC 6761: .invalid never resolves


@routed(NOWHERE, json_ok, policy="round_robin")
async def test_another_replica_serves(router: Router) -> None:
    for _ in range(2):
        assert (await router.ask(chat())).status == 200
    assert min(line["attempts"] for line in await router.log(2)) == 1


@routed(NOWHERE)
async def test_alone_it_is_a_503(router: Router) -> None:
    answer = await router.ask(chat())
    assert answer.status == 503
    assert answer.error()["code"] in ("connect_failed", "no_replica")
