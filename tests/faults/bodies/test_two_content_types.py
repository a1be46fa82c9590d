"""A request with two different Content-Type fields is refused: engines read the first, other
servers the last. Two equal fields are forwarded as one.
"""

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import echo
from tests.harness.messages import chat
from tests.harness.running import Router, assert_error, routed


@pytest.mark.parametrize("field", ["content-type: text/plain", "Content-Type: application/jsonl"])
@routed(echo)
async def test_it_is_refused(router: Router, field: str) -> None:
    for _ in range(2):  # a refused head is not cached
        answer = await router.ask(chat(field), "POST")
        assert_error(answer, Reason.BAD_HEADER)
    assert not router.replica.requests


@pytest.mark.parametrize(
    "field", ["content-type: application/json", "CONTENT-TYPE:application/json "]
)
@routed(echo)
async def test_two_equal_ones_are_one(router: Router, field: str) -> None:
    client = await router.client()
    for _ in range(2):  # the second time from a remembered head
        await client.send(chat(field, field))
        assert (await client.recv_response("POST")).status == 200
    for seen in router.replica.requests:
        assert seen.header("content-type") == "application/json"
