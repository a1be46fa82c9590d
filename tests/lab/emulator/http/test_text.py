"""Tokens and words: output has the same token count when it is sent back in a prompt."""

from hypothesis import given, strategies as st

from router.lab.emulator.http import text
from router.lab.emulator.http.bodies import render

prompts = st.builds(
    lambda head, tail: text.pad(head) + tail,
    st.binary(max_size=40),
    st.sampled_from([b"", b"The ", b"The old fox ", *text._story().rank_of]),
)


@given(prompts)
def test_a_natural_answer_to_a_question_is_whole_sentences(prompt: bytes) -> None:
    output, ended = text.answer(prompt + b"    ", 1000)
    answer = output.decode()
    assert ended
    assert answer.startswith("The ")
    assert answer.endswith(". ")
    assert 4 <= answer.count(". ") <= 16


@given(prompts, st.integers(1, 20_000))
def test_at_least_what_is_asked_and_still_whole_sentences(prompt: bytes, least: int) -> None:
    output, ended = text.answer(prompt, least + 300, at_least=least)
    assert ended
    assert least <= len(output) // text.TOKEN_BYTES < least + 200
    assert output.endswith(b". ")


@given(prompts, st.integers(1, 3000), st.integers(1, 3000))
def test_a_shorter_answer_is_the_longer_one_cut(prompt: bytes, one: int, other: int) -> None:
    short, long = sorted((one, other))
    whole = text.answer(prompt, long, is_endless=True).output
    assert len(whole) == long * text.TOKEN_BYTES
    assert whole[: short * text.TOKEN_BYTES] == text.answer(prompt, short, is_endless=True).output


@given(prompts, st.data())
def test_a_prompt_and_the_first_tokens_of_its_answer_get_exactly_the_rest(
    prompt: bytes, data: st.DataObject
) -> None:
    limit = data.draw(st.integers(1, 400))
    least = data.draw(st.integers(0, limit))
    endless = data.draw(st.booleans())
    whole = text.answer(prompt, limit, least, endless)
    tokens = len(whole.output) // text.TOKEN_BYTES
    begun = data.draw(st.integers(0, tokens))
    rest = text.answer(
        prompt + whole.output[: begun * text.TOKEN_BYTES],
        limit - begun,
        max(least - begun, 0),
        endless,
    )
    assert whole.output[begun * text.TOKEN_BYTES :] == rest.output


@given(prompts)
def test_choices_differ(prompt: bytes) -> None:
    answers = {text.answer(prompt, 200, 200, choice=choice).output for choice in range(4)}
    assert len(answers) == 4


@given(st.binary(max_size=200))
def test_token_ids_and_back(data: bytes) -> None:
    padded = text.pad(data)
    assert text.from_token_ids(text.token_ids(padded)) == padded


def test_a_conversation_continues_the_prompt_and_the_answer_it_grew_from() -> None:
    question = [{"role": "user", "content": "What did the fox see?"}]
    prompt = render(question)
    answer = text.answer(prompt, 33, is_endless=True).output
    later = render([*question, {"role": "assistant", "content": answer.decode()}, *question])
    assert later.startswith(prompt + answer)


def test_block_hashes_are_chained_and_seeded() -> None:
    data = b"abcd" * 40
    hashes = text.block_hashes(data, 16)
    assert len(hashes) == 2
    assert text.block_hashes(data[:64], 16) == hashes[:1]
    assert text.block_hashes(b"x" + data[1:], 16)[1] != hashes[1]
    assert text.block_hashes(data, 16, "salt") != hashes
