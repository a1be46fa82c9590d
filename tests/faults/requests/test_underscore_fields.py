"""A field that a gateway could take for another one: dropped or refused, never forwarded."""

import pytest

from tests.harness.behaviours import echo
from tests.harness.messages import request
from tests.harness.running import Router, routed


@pytest.mark.parametrize("name", ["Content_Length", "Transfer_Encoding", "X_Request_Id", "Host_"])
@routed(echo)
async def test_it_does_not_reach_a_replica(router: Router, name: str) -> None:
    asked = request("/upload", f"{name}: 3", method="POST", body=b"hello")
    answer = await router.ask(asked)
    assert answer.status in (200, 400)
    if answer.status == 200:
        assert answer.json()["body"] == "hello"
    for seen in router.replica.requests:
        assert not [field for field, _ in seen.headers if "_" in field]
