"""The token ID provider: immediate, on time, late, cancelled, too many, no replica to query."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from router.addons.kv_events.chains import TokenChains, pack
from router.addons.kv_events.tokens import provider as provider_module
from router.addons.kv_events.tokens.facts import Facts
from router.addons.kv_events.tokens.provider import Question, TokenProvider
from router.addons.kv_events.tokens.remote import Target
from router.config.in_force import InForce
from router.config.model import Config, Prefix
from router.core.errors import ConfigError
from tests.addons.kv_events.app.hearing import until
from tests.addons.kv_events.tokens.models import chat, raw, save
from tests.harness.behaviours import answer, answer_after, hang
from tests.harness.messages import json_response
from tests.harness.replica import Behaviour, HostileReplica
from tests.harness.running import scenario

PATIENCE_S = 20.0
IDS = list(range(100, 140))


class Asker:
    """A provider and its results."""

    def __init__(self, provider: TokenProvider, server: HostileReplica) -> None:
        self.provider = provider
        self.server = server
        self.told: list[TokenChains | None] = []
        self.errors: list[BaseException] = []

    def ask(self, facts: Facts, *, remote: bool = True, **more: Any) -> Question:
        target = Target(self.server.url + "/tokenize") if remote else None
        return self.provider.ask(facts, self.told.append, target=target, **more)

    async def answer(self, facts: Facts, **more: Any) -> TokenChains | None:
        question = self.ask(facts, **more)
        if question.is_done:
            return question.chains
        before = len(self.told)
        await until(lambda: len(self.told) > before)
        assert question.is_done and question.chains is self.told[-1]
        return self.told[-1]


def answering(*, gate: asyncio.Event | None = None) -> Behaviour:
    """Answer every request with token IDs, once the gate is open."""
    return answer_after(0.0 if gate is None else gate, json_response({"tokens": IDS}))


@asynccontextmanager
async def asking(
    behave: Behaviour = hang, wait_s: float = PATIENCE_S, **tokenizers: Path
) -> AsyncIterator[Asker]:
    server = HostileReplica(behave, asked_apart=False)
    server.start()
    before = asyncio.all_tasks()
    prefix = Prefix(
        exact=True,
        tokens_wait_s=wait_s,
        tokenizers={model: str(path) for model, path in tokenizers.items()},
    )
    errors: list[BaseException] = []
    provider = TokenProvider(InForce(Config(prefix=prefix)), errors.append)
    await provider.start()
    asker = Asker(provider, server)
    asker.errors = errors
    try:
        yield asker
    finally:
        await provider.stop()
        await server.stop()
        await asyncio.sleep(0)
    assert provider.running == 0
    assert asyncio.all_tasks() <= before
    assert not errors


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("model"))


def facts(*texts: str, **more: Any) -> Facts:
    return Facts("chat", "m", messages=raw(chat(*(texts or ("hello",)))), **more)


@scenario
async def test_a_replica_is_asked() -> None:
    async with asking(answering()) as asker:
        chains = await asker.answer(facts(), salt="pepper", lora="ad")
        assert chains is not None
        assert chains.of(4) == TokenChains(pack(IDS), "ad", "pepper").of(4)
        assert asker.provider.counters.remote == 1


@scenario
async def test_our_own_tokenizer_is_asked_first(folder: Path) -> None:
    async with asking(answering(), m=folder) as asker:
        chains = await asker.answer(facts())
        assert chains is not None and chains.count > 0
        assert chains.of(4) != TokenChains(pack(IDS)).of(4)
        assert (asker.provider.counters.local, asker.provider.counters.remote) == (1, 0)
        # Prompts with tools, and models without a tokenizer, are tokenized by the replica.
        for other in (facts(tools=b"[{}]"), Facts("chat", "n", messages=raw(chat("a")))):
            chains = await asker.answer(other)
            assert chains is not None and chains.of(4) == TokenChains(pack(IDS)).of(4)
        assert asker.provider.counters.remote == 2


@scenario
async def test_what_was_asked_before_is_known_at_once() -> None:
    async with asking(answering()) as asker:
        first = await asker.answer(facts())
        question = asker.ask(facts(), salt="other")
        assert question.is_done and question.chains is not None and first is not None
        assert question.chains.of(4) != first.of(4)
        question = asker.ask(facts(), remote=False)
        assert question.is_done and question.chains is not None
        assert question.chains.of(4) == first.of(4)
        assert len(asker.told) == 1
        assert asker.provider.counters.cached == 2
        # A difference in any other field that affects the token IDs makes it a different request.
        for other in (facts("x"), facts(tools=b"[]"), facts(template_kwargs=b"{}")):
            assert not asker.ask(other).is_done


@scenario
async def test_no_list_of_prompts_is_sent_to_a_replica() -> None:
    """/tokenize takes one text, so it would refuse these lists."""
    async with asking(answering()) as asker:
        for prompt in (list(range(20_000)), [list(range(20_000))], [[1], [2]], ["a", "b"]):
            question = asker.ask(Facts("completions", "m", prompt=raw(prompt)))
            assert question.is_done and question.chains is None, prompt
        assert asker.provider.counters.unknown == 4
        chains = await asker.answer(Facts("completions", "m", prompt=raw(["a"])))
        assert chains is not None
        (request,) = asker.server.requests
        assert json.loads(bytes(request.body)) == {"model": "m", "prompt": "a"}


@pytest.mark.parametrize(
    "unknown",
    [
        Facts("embeddings", "m", prompt=raw("a")),
        Facts("chat", "m"),
        Facts("chat", "m", messages=b'[{"type":"image_url"}]'),
    ],
)
@scenario
async def test_without_a_tokenizer_the_answer_is_none_at_once(unknown: Facts) -> None:
    async with asking() as asker:
        question = asker.ask(unknown)
        assert question.is_done and question.chains is None
        assert asker.ask(facts(), remote=False).is_done
        assert asker.provider.counters.unknown == 2
        assert asker.told == []


@scenario
async def test_an_answer_that_comes_too_late_is_for_the_next_time() -> None:
    gate = asyncio.Event()
    async with asking(answering(gate=gate), wait_s=0.02) as asker:
        assert await asker.answer(facts()) is None
        assert (asker.provider.counters.late, asker.provider.running) == (1, 2)
        gate.set()
        await until(lambda: asker.provider.running == 0)
        question = asker.ask(facts())
        assert question.is_done and question.chains is not None
        assert asker.told == [None]


@scenario
async def test_without_waiting_only_memory_answers() -> None:
    async with asking(answering(), wait_s=0.0) as asker:
        question = asker.ask(facts())
        assert question.is_done and question.chains is None
        await until(lambda: asker.provider.running == 0)
        assert asker.ask(facts()).chains is not None
        assert asker.told == []


@scenario
async def test_equal_questions_are_one() -> None:
    gate = asyncio.Event()
    async with asking(answering(gate=gate)) as asker:
        questions = [asker.ask(facts()) for _ in range(5)]
        questions[0].cancel()
        assert asker.provider.running == 2
        gate.set()
        await until(lambda: len(asker.told) == 4)
        assert len(asker.server.requests) == 1
        assert questions[0].chains is None


@scenario
async def test_a_cancelled_question_is_not_answered() -> None:
    async with asking(hang) as asker:
        question = asker.ask(facts())
        await asker.server.wait_for_requests(1)
        question.cancel()
        question.cancel()
        await until(lambda: asker.provider.running == 0)
        assert asker.told == []


@scenario
async def test_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_module, "JOBS", 2)
    async with asking(hang) as asker:
        questions = [asker.ask(facts(text)) for text in ("a", "b", "c", "a")]
        assert [question.is_done for question in questions] == [False, False, True, False]
        assert asker.provider.counters.refused == 1


@scenario
async def test_a_replica_that_fails_is_none() -> None:
    async with asking(_refusing) as asker:
        assert await asker.answer(facts()) is None
        assert asker.provider.counters.failed == 1
        assert not asker.ask(facts()).is_done  # the failure is not cached


_refusing = answer(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")


@scenario
async def test_a_callback_that_raises_affects_no_other(folder: Path) -> None:
    async with asking(m=folder) as asker:

        def spoil(chains: TokenChains | None) -> None:
            raise RuntimeError("spoilt")

        asker.provider.ask(facts(), spoil)
        asker.ask(facts())
        await until(lambda: len(asker.told) == 1)
        assert [str(error) for error in asker.errors] == ["spoilt"]
        asker.errors.clear()


@scenario
async def test_the_event_loop_is_free_meanwhile(folder: Path) -> None:
    """Tokenizing runs elsewhere: the loop continues while a long prompt is processed."""
    async with asking(m=folder) as asker:
        asker.ask(Facts("completions", "m", prompt=raw("the dog and the fox " * 20_000)))
        turns = 0
        while not asker.told:
            turns += 1
            await asyncio.sleep(0)
        assert turns > 10


@scenario
async def test_tokenizers_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    prefix = Prefix(tokenizers={"m": str(tmp_path / "none"), "n": str(tmp_path)})
    provider = TokenProvider(InForce(Config(prefix=prefix)), lambda error: None)
    with pytest.raises(ConfigError) as caught:
        await provider.start()
    assert [line.partition(":")[0] for line in caught.value.problems] == [
        "prefix.tokenizers.m",
        "prefix.tokenizers.n",
    ]
    assert provider.running == 0


@scenario
async def test_a_prompt_of_token_ids_is_known_at_once() -> None:
    async with asking() as asker:
        question = asker.ask(Facts("completions", "m", prompt=raw(IDS)))
        assert question.is_done and question.chains is not None
        assert question.chains.of(4) == TokenChains(pack(IDS)).of(4)
        question.cancel()


@scenario
async def test_waiting_callers_are_called_back_when_it_stops() -> None:
    async with asking(hang) as asker:
        asker.ask(facts())
        await asker.provider.stop()
        assert asker.told == [None]
        assert asker.ask(facts("later")).is_done


@scenario
async def test_a_template_that_refuses_is_none(tmp_path: Path) -> None:
    save(tmp_path, template="{{ raise_exception('no') }}")
    async with asking(m=tmp_path) as asker:
        assert await asker.answer(facts()) is None
        assert asker.provider.counters.failed == 1
