"""Tokens and words: what is generated counts the same when it comes back in a prompt."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.emulator import text
from router.emulator.bodies import render

seeds = st.integers(0, 2**64 - 1)


@given(seeds)
def test_a_natural_answer_is_whole_sentences(seed: int) -> None:
    tokens = text.natural_tokens(seed)
    answer = text.generate(seed, tokens).decode()
    assert answer.startswith("The ")
    assert answer.endswith(". ")
    assert 4 <= answer.count(". ") <= 16
    assert len(answer) == tokens * text.TOKEN_BYTES


@given(seeds, st.integers(1, 20_000))
def test_at_least_what_is_asked_and_still_whole_sentences(seed: int, least: int) -> None:
    tokens = text.natural_tokens(seed, at_least=least)
    assert least <= tokens < least + 200
    assert text.generate(seed, tokens).endswith(b". ")


@given(seeds, st.integers(0, 30_000), st.integers(0, 30_000))
def test_a_shorter_answer_is_the_longer_one_cut(seed: int, one: int, other: int) -> None:
    short, long = sorted((one, other))
    assert text.generate(seed, long)[: short * text.TOKEN_BYTES] == text.generate(seed, short)


@given(st.binary(max_size=200))
def test_token_ids_and_back(data: bytes) -> None:
    padded = text.pad(data)
    assert text.from_token_ids(text.token_ids(padded)) == padded


def test_a_conversation_continues_the_prompt_and_the_answer_it_grew_from() -> None:
    question = [{"role": "user", "content": "What did the fox see?"}]
    prompt = render(question)
    answer = text.generate(text.seed_of(prompt), 33)
    later = render([*question, {"role": "assistant", "content": answer.decode()}, *question])
    assert later.startswith(prompt + answer)


def test_block_hashes_are_chained_and_seeded() -> None:
    data = b"abcd" * 40
    hashes = text.block_hashes(data, 16)
    assert len(hashes) == 2
    assert text.block_hashes(data[:64], 16) == hashes[:1]
    assert text.block_hashes(b"x" + data[1:], 16)[1] != hashes[1]
    assert text.block_hashes(data, 16, "salt") != hashes
