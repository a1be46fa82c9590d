"""The openai SDK with only the base URL changed."""

import asyncio
from collections.abc import Iterator

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionChunk

from tests.clients.conftest import CONTINUES, MODEL, Served

HELLO = [{"role": "user", "content": "hello there"}]
continues = pytest.mark.skipif(not CONTINUES, reason="needs the addon for broken streams")


@pytest.fixture
def client(served: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=served.v1, api_key="any", max_retries=0, timeout=20) as made:
        yield made


def test_chat(client: OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=5)
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5


def test_chat_stream(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=HELLO,
        max_tokens=5,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 5


@continues
@pytest.mark.parametrize("after", [1, 7, 30])
def test_a_chat_stream_whose_replica_dies(client: OpenAI, served: Served, after: int) -> None:
    """The client gets all chunks and the complete text, as if the replica had not failed."""

    def ask(**headers: str) -> list[ChatCompletionChunk]:
        return list(
            client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": f"tell me of {after} foxes"}],
                max_tokens=40,
                stream=True,
                stream_options={"include_usage": True},
                extra_headers=headers,
            )
        )

    def text(chunks: list[ChatCompletionChunk]) -> str:
        return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)

    undisturbed = ask()
    continued = served.continued()
    # one of the two replicas dies; the request may have gone to the other
    while served.continued() == continued:
        chunks = ask(**{"x-emulate-fault": f"die_after={after}; replica=emulated-0"})
        assert text(chunks) == text(undisturbed)
        assert len(chunks) == len(undisturbed)
        assert {(c.id, c.created, c.model) for c in chunks} == {
            (chunks[0].id, chunks[0].created, chunks[0].model)
        }
        assert [c.choices[0].delta.role for c in chunks if c.choices and c.choices[0].delta.role]
        told, expected = chunks[-1].usage, undisturbed[-1].usage
        assert told is not None
        assert expected is not None
        assert told.completion_tokens == expected.completion_tokens
        assert told.prompt_tokens == expected.prompt_tokens
        assert told.total_tokens == expected.total_tokens


@continues
@pytest.mark.parametrize("after", [1, 7, 30])
def test_a_completion_stream_whose_replica_dies(client: OpenAI, served: Served, after: int) -> None:
    def ask(**headers: str) -> str:
        chunks = client.completions.create(
            model=MODEL,
            prompt=f"Once up {after:02}. ",  # the prompt is a whole number of the emulator's tokens
            max_tokens=40,
            stream=True,
            extra_headers=headers,
        )
        return "".join(chunk.choices[0].text for chunk in chunks)

    undisturbed = ask()
    continued = served.continued()
    while served.continued() == continued:
        assert ask(**{"x-emulate-fault": f"die_after={after}; replica=emulated-0"}) == undisturbed


def test_completion_stream(client: OpenAI) -> None:
    chunks = list(client.completions.create(model=MODEL, prompt="hi", max_tokens=3, stream=True))
    assert chunks[-1].choices[0].finish_reason == "length"


def test_raw_response(client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=HELLO, max_tokens=2, extra_headers={"x-request-id": "mine-1"}
    )
    assert raw.status_code == 200
    assert raw.headers["content-type"].startswith("application/json")
    assert raw.request_id
    assert raw.parse().choices


def test_an_unknown_model_raises_its_own_class(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        client.chat.completions.create(model="nobody", messages=HELLO)
    assert raised.value.code == "model_not_found"
    assert raised.value.param == "model"


def test_a_refusal_of_the_engine_raises_its_own_class(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=10_000_000)


def test_an_unknown_path_raises_its_own_class(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.fine_tuning.jobs.list()


@pytest.mark.parametrize("route", ["embeddings", "responses"])
def test_other_routes_reach_the_engine(client: OpenAI, route: str) -> None:
    """The answer is the engine's own, including its 404."""
    try:
        if route == "embeddings":
            answer = client.embeddings.create(model=MODEL, input="hello", encoding_format="float")
            assert answer.data[0].embedding
        else:
            response = client.responses.create(model=MODEL, input="hello", max_output_tokens=16)
            assert response.id
    except openai.NotFoundError as err:
        assert err.code != "not_found", "the router's own 404, not the engine's"


def test_a_stream_left_early_leaves_the_client_usable(client: OpenAI) -> None:
    for _ in range(5):
        stream = client.chat.completions.create(
            model=MODEL, messages=HELLO, max_tokens=1000, stream=True
        )
        next(iter(stream))
        stream.close()
    assert client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=1).choices


def test_async(served: Served) -> None:
    async def main() -> None:
        async with AsyncOpenAI(
            base_url=served.v1, api_key="any", max_retries=0, timeout=20
        ) as client:

            async def one(stream: bool) -> str:
                if not stream:
                    answer = await client.chat.completions.create(
                        model=MODEL, messages=HELLO, max_tokens=4
                    )
                    return answer.choices[0].message.content or ""
                text = ""
                async for chunk in await client.chat.completions.create(
                    model=MODEL, messages=HELLO, max_tokens=4, stream=True
                ):
                    if chunk.choices:
                        text += chunk.choices[0].delta.content or ""
                return text

            texts = await asyncio.gather(*(one(index % 2 == 0) for index in range(20)))
            assert all(texts)
            assert [model.id async for model in client.models.list()] == [MODEL]

    asyncio.run(main())
