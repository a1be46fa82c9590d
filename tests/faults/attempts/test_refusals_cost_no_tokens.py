"""An engine that refuses a request has generated nothing.

The tokens reserved for it are returned to its key; the request itself still counts.
"""

from pathlib import Path

import pytest

from router.config.model import Keys, Prefix
from router.core.errors import Reason
from tests.app.test_keys_at_the_door import BEARER, acme, file_of
from tests.harness.behaviours import answer, hang
from tests.harness.messages import chat, json_response, post_json
from tests.harness.replica import Behaviour, ReplicaConnection
from tests.harness.running import assert_error, running, virtual_scenario

LONG = [{"role": "user", "content": "x" * 6000}]  # a prompt of 1500 tokens
REFUSAL = {"error": {"message": "too long", "code": 400}}


def refuses(status: int) -> Behaviour:
    return answer(json_response(REFUSAL, status))


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
@pytest.mark.parametrize("stream", [False, True])
@virtual_scenario
async def test_the_tokens_are_given_back(status: int, stream: bool, tmp_path: Path) -> None:
    keys = Keys(file=file_of(tmp_path, acme(tokens_per_minute=2000)))
    async with running(refuses(status), keys=keys, prefix=Prefix()) as router:
        for _ in range(4):
            asked = chat(BEARER, stream=stream, messages=LONG)
            assert (await router.ask(asked, "POST")).status == status


@virtual_scenario
async def test_the_request_counts(tmp_path: Path) -> None:
    limits = {"tokens_per_minute": 2000, "requests_per_minute": 3}
    keys = Keys(file=file_of(tmp_path, acme(**limits)))
    async with running(refuses(400), keys=keys, prefix=Prefix()) as router:
        for _ in range(3):
            assert (await router.ask(chat(BEARER, messages=LONG), "POST")).status == 400
        asked = chat(BEARER, messages=LONG)
        assert_error(await router.ask(asked, "POST"), Reason.KEY_REQUESTS)


@pytest.mark.parametrize("status", [200, 201, 202])
@virtual_scenario
async def test_an_answer_costs_its_tokens(status: int, tmp_path: Path) -> None:
    """An answer of any status without reported counts costs the reserved tokens and its bytes."""
    keys = Keys(file=file_of(tmp_path, acme(tokens_per_minute=2000)))
    behave = answer(json_response({"choices": [{"text": "y" * 4000}]}, status))
    async with running(behave, keys=keys, prefix=Prefix()) as router:
        asked = post_json("/v1/completions", {"model": "m", "prompt": "x" * 6000}, BEARER)
        assert (await router.ask(asked, "POST")).status == status
        assert_error(await router.ask(asked, "POST"), Reason.KEY_TOKENS)


@virtual_scenario
async def test_a_refusal_inside_a_stream(tmp_path: Path) -> None:
    """The client got a 200 and comments before the engine refused the request."""
    keys = Keys(file=file_of(tmp_path, acme(tokens_per_minute=2000)))
    times = {"commit_after_s": 0.1}
    async with running(hang, keys=keys, prefix=Prefix(), timeouts=times) as router:

        async def late(connection: ReplicaConnection) -> None:
            while await connection.recv_request():
                await router.answers_early()
                await connection.send(json_response(REFUSAL, 400))

        router.replica.behave = late
        for _ in range(3):
            asked = chat(BEARER, stream=True, messages=LONG)
            got = await router.ask(asked, "POST")
            assert got.status == 200
            assert b"too long" in got.body
