"""An engine that sends 200 and then an error inside its stream."""

from __future__ import annotations

from router.core.errors import Reason
from tests.harness.behaviours import answer, in_turn, sse_tokens
from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, event, role, token
from tests.harness.replica import Behaviour
from tests.harness.running import running, scenario

ERROR = event(
    {"error": {"message": "boom", "type": "InternalServerError", "param": None, "code": 500}}
)


def streams(*events: bytes) -> Behaviour:
    behave = answer(SSE_HEAD, *(chunk(item) for item in events), LAST_CHUNK)

    return behave


@scenario
async def test_after_content_it_is_passed_on_and_counted() -> None:
    events = role(), token("a"), ERROR, DONE
    async with running(streams(*events)) as router:
        answer = await router.ask(chat(stream=True))
        assert answer.complete
        assert answer.body == b"".join(events)
        assert await router.reason() == "stream_error"


@scenario
async def test_before_content_it_is_a_failure_that_another_replica_can_mend() -> None:
    behave = in_turn(streams(role(), ERROR, DONE), then=sse_tokens(1))
    async with running(behave, behave) as router:
        answer = await router.ask(chat(stream=True))
        assert answer.status == 200
        assert answer.complete
        assert b"boom" not in answer.body
        assert answer.events()[-1] == "[DONE]"
        (line,) = await router.log()
        assert (line["reason"], line["attempts"]) == ("ok", 2)


@scenario
async def test_before_content_everywhere() -> None:
    async with running(streams(role(), ERROR, DONE)) as router:
        answer = await router.ask(chat(stream=True))
        assert b"boom" in answer.body or answer.error()["code"] == Reason.STREAM_ERROR.value
        assert await router.reason() == "stream_error"
