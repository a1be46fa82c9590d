"""A replica that resets after the whole request, before the first byte of its answer."""

from __future__ import annotations

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import fin_after_request, in_turn, json_ok, rst_after_request
from tests.harness.messages import chat, post_json
from tests.harness.replica import Behaviour
from tests.harness.running import assert_error, running, scenario

BOTH_ENDS = pytest.mark.parametrize("end", [rst_after_request, fin_after_request])


@BOTH_ENDS
@scenario
async def test_a_completion_is_sent_once_more(end: Behaviour) -> None:
    behave = in_turn(end, then=json_ok)
    async with running(behave, behave) as router:
        assert (await router.ask(chat())).status == 200
        (line,) = await router.log()
        assert (line["reason"], line["attempts"]) == ("ok", 2)


@BOTH_ENDS
@scenario
async def test_and_not_twice_more(end: Behaviour) -> None:
    async with running(end, end, end) as router:
        assert_error(await router.ask(chat()), Reason.REPLICA_RESET)
        (line,) = await router.log()
        assert (line["reason"], line["attempts"]) == ("replica_reset", 2)
        assert sum(len(replica.requests) for replica in router.replicas) == 2


@pytest.mark.parametrize("path", ["/v1/files", "/v1/batches"])
@scenario
async def test_what_leaves_state_behind_is_not_sent_again(path: str) -> None:
    behave = in_turn(rst_after_request, then=json_ok)
    async with running(behave, behave) as router:
        assert_error(await router.ask(post_json(path, {})), Reason.REPLICA_RESET)
        assert (await router.log())[0]["attempts"] == 1
        assert sum(len(replica.requests) for replica in router.replicas) == 1


@scenario
async def test_a_stored_response_is_not_sent_again() -> None:
    behave = in_turn(rst_after_request, then=json_ok)
    async with running(behave, behave) as router:
        body = {"model": "m", "input": "hello", "store": True}
        assert_error(await router.ask(post_json("/v1/responses", body)), Reason.REPLICA_RESET)
        assert sum(len(replica.requests) for replica in router.replicas) == 1


@scenario
async def test_retries_can_be_switched_off() -> None:
    behave = in_turn(rst_after_request, then=json_ok)
    async with running(behave, behave, retry={"attempts": 1}) as router:
        assert_error(await router.ask(chat()), Reason.REPLICA_RESET)
        assert (await router.log())[0]["attempts"] == 1
