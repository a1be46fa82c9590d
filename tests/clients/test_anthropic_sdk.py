"""The anthropic and ollama SDKs with only the base URL changed: answers, and errors."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import ollama
import pytest
from anthropic import Anthropic

from tests.clients.conftest import MODEL, Served
from tests.harness.behaviours import hang
from tests.harness.messages import json_response
from tests.harness.replica import ReplicaConnection
from tests.harness.running import long_scenario, running

HELLO: Any = [{"role": "user", "content": "hello there"}]
LIMIT = {
    "error": {"message": "too many of them", "type": "Busy", "param": None, "code": 429},
}


@pytest.fixture
def client(served: Served) -> Iterator[Anthropic]:
    with Anthropic(base_url=served.url, api_key="any", max_retries=0, timeout=20) as made:
        yield made


def test_messages(client: Anthropic) -> None:
    answer = client.messages.create(model=MODEL, messages=HELLO, max_tokens=5)
    assert answer.content[0].type == "text"
    assert answer.usage.output_tokens == 5


def test_a_stream_of_messages(client: Anthropic) -> None:
    with client.messages.stream(model=MODEL, messages=HELLO, max_tokens=5) as stream:
        assert "".join(stream.text_stream)


def test_an_unknown_model_raises_its_own_class(client: Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as raised:
        client.messages.create(model="nobody", messages=HELLO, max_tokens=5)
    error = raised.value.body["error"]  # type: ignore[index]
    assert error["type"] == "not_found_error"
    assert "nobody" in error["message"]


def test_a_stream_that_breaks_says_why(client: Anthropic) -> None:
    with pytest.raises(anthropic.APIStatusError, match="replica_reset"):
        for _ in client.messages.create(
            model=MODEL,
            messages=HELLO,
            max_tokens=20,
            stream=True,
            extra_headers={"x-emulate-fault": "die_after=5"},
        ):
            pass


async def late(ask: Callable[[str], object], *, behind_200: bool) -> None:
    """Run `ask` in front of a replica that refuses when the router has waited long enough to send
    its own 200. `behind_200`: whether the router sends this 200.
    """
    timeouts = {"commit_after_s": 0.05}
    async with running(hang, timeouts=timeouts, retry={"attempts": 1}) as router:

        async def refuses(connection: ReplicaConnection) -> None:
            while await connection.recv_request():
                if behind_200:
                    await router.answers_early()
                else:
                    await asyncio.sleep(0.2)  # no event shows that nothing is sent
                await connection.send(json_response(LIMIT, 400))

        router.replica.behave = refuses
        await asyncio.to_thread(ask, f"http://127.0.0.1:{router.port}")


@long_scenario
async def test_an_error_behind_our_200_keeps_its_message_for_anthropic() -> None:
    def ask(url: str) -> None:
        with Anthropic(base_url=url, api_key="any", max_retries=0, timeout=20) as client:
            stream = client.messages.create(model="m", messages=HELLO, max_tokens=5, stream=True)
            with pytest.raises(anthropic.APIStatusError, match="too many of them") as raised:
                list(stream)
            assert raised.value.body["error"]["status"] == 400  # type: ignore[index]

    await late(ask, behind_200=True)


@long_scenario
async def test_an_error_keeps_its_status_for_ollama() -> None:
    """Ollama's streams are lines of JSON: the router never sends an early 200 for them."""

    def ask(url: str) -> None:
        client = ollama.Client(host=url)
        with pytest.raises(ollama.ResponseError, match="too many of them") as raised:
            list(client.chat(model="m", messages=HELLO, stream=True))
        assert raised.value.status_code == 400
        client._client.close()

    await late(ask, behind_200=False)
