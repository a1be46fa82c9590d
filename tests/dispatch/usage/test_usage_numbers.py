"""Counts found by their names: which bytes are a count, and how several are combined."""

import pytest
from hypothesis import example, given, strategies as st

from router.dispatch.usage.usage_numbers import Numbers
from tests.examples import examples


def numbers(*pieces: bytes) -> Numbers:
    found = Numbers()
    for piece in pieces:
        found.feed(piece)
    return found


@pytest.mark.parametrize(
    "data",
    [
        b'{"prompt_tokens":7}',
        b'{"prompt_tokens": 7,"a":1}',
        b'{"prompt_tokens"\n\t:\r\n 7\n}',
        b'[{"prompt_tokens":7}]',
        b'{"x":["prompt_tokens":7]',
        b'\xff"prompt_tokens":7 ',
        b'{"prompt_tokens":000007}',
        b'{"prompt_tokens":"7"}',
        b'{"prompt_tokens":7.5}',
        b'{"prompt_tokens": "7.0" }',
    ],
)
def test_a_count(data: bytes) -> None:
    assert numbers(data).get(b"prompt_tokens") == 7


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"prompt_tokens":null}',
        b'{"prompt_tokens":"seven"}',
        b'{"prompt_tokens":-7}',
        b'{"prompt_tokens":.5}',
        b'{"prompt_tokens":7e3}',
        b'{"prompt_tokens":7',  # more digits may follow
        b'{"prompt_tokens":123456789012345}',
        b'{"prompt_tokens":     7}',
        b'{"x_prompt_tokens":7}',
        b'{"prompt_tokens_x":7}',
        b'{"text":"\\"prompt_tokens\\":7,"}',
        b'{"reasoning_tokens":7}',
        b"{'prompt_tokens':7}",
    ],
)
def test_values_that_are_not_a_count(data: bytes) -> None:
    assert numbers(data).get(b"prompt_tokens") is None


@pytest.mark.parametrize(
    "name",
    [
        *(b"prompt_tokens", b"completion_tokens", b"cached_tokens", b"input_tokens"),
        *(b"output_tokens", b"cache_read_input_tokens", b"cache_creation_input_tokens"),
        *(b"generated_tokens", b"prompt_eval_count", b"eval_count"),
        *(b"prompt_n", b"predicted_n", b"cache_n"),
    ],
)
def test_every_name_is_found_in_small_and_in_large_pieces(name: bytes) -> None:
    member = b'"%b":42,' % name
    for data in (member, b"x" * 5000 + member, member + b"x" * 5000):
        found = numbers(data)
        assert found.get(name) == 42
        assert found.get(b"other") is None


def test_of_one_answer_the_largest_number_counts() -> None:
    found = numbers(b'{"eval_count":9}', b'{"eval_count":3}', b'{"eval_count":8}')
    assert found.get(b"eval_count") == 9
    assert found.is_of_one


@pytest.mark.parametrize("beginning", [b"[", b"\n [", b'{"predictions":[', b'{"predictions": ['])
def test_of_a_list_of_answers_the_numbers_are_added(beginning: bytes) -> None:
    found = numbers(beginning + b'{"eval_count":9},', b'{"eval_count":3}]}')
    assert found.get(b"eval_count") == 12
    assert not found.is_of_one


def test_a_list_inside_an_answer_is_not_a_list_of_answers() -> None:
    assert numbers(b'{"choices":[{"eval_count":9},{"eval_count":3}]}').get(b"eval_count") == 9


def test_the_largest_of_several_names() -> None:
    found = numbers(b'{"input_tokens":3,"prompt_tokens":5,"output_tokens":0}')
    assert found.most(b"input_tokens", b"prompt_tokens") == 5
    assert found.most(b"input_tokens", b"absent") == 3
    assert found.most(b"output_tokens") == 0
    assert found.most(b"absent") is None
    assert found.most() is None


TEXT = b'[{"prompt_tokens": 12, "x":"eval_count"}, {"prompt_tokens":30,"eval_count" : 5}]'


@given(st.lists(st.integers(0, len(TEXT)), max_size=12))
def test_a_count_is_taken_once_however_the_answer_is_cut(places: list[int]) -> None:
    at = sorted(places)
    pieces = [TEXT[a:b] for a, b in zip([0, *at], [*at, len(TEXT)], strict=True)]
    found = numbers(*pieces)
    assert (found.get(b"prompt_tokens"), found.get(b"eval_count")) == (42, 5)
    assert not found.is_of_one


@given(st.lists(st.binary(max_size=50) | st.sampled_from([b'"eval_count":', b"7", b","])))
def test_few_bytes_are_kept_whatever_comes(pieces: list[bytes]) -> None:
    found = Numbers()
    for piece in pieces:
        found.feed(piece)
        assert len(found._carry) <= 80


# Large answers.

NAMES = (b"prompt_tokens", b"cached_tokens", b"eval_count", b"prompt_eval_count", b"prompt_n")
COUNTS = [b'"%b": %d,' % (name, 7 + len(name)) for name in NAMES]
# Text without an underscore, with many underscores, and with apparent ends of a name.
FILLERS = [b"x" * 5000, b"a_b " * 1500, b'"a_n "' * 900, b"_" * 5000, b'"a_count":1,' * 500, b"["]


def counts(pieces: list[bytes]) -> list[int | None]:
    found = numbers(*pieces)
    return [found.is_of_one, *(found.get(name) for name in NAMES)]


def cut(text: bytes, size: int) -> list[bytes]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@examples(200)
@given(st.lists(st.sampled_from(COUNTS + FILLERS), max_size=9), st.integers(4097, 20_000))
@example([FILLERS[0], COUNTS[2], FILLERS[0]], 5005)
@example([FILLERS[3], COUNTS[0]], 100_000)
@example([b"[", COUNTS[0], FILLERS[0], COUNTS[0], FILLERS[1]], 4097)
def test_a_count_is_found_however_large_the_pieces_are(parts: list[bytes], size: int) -> None:
    text = b"".join(parts)
    assert counts(cut(text, size)) == counts(cut(text, 1000))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("filler", FILLERS[:-1])
def test_a_count_across_two_large_pieces(count: bytes, filler: bytes) -> None:
    """Counts in a list are added up, so that a count that is counted twice would be noticed."""
    before = b"[" + filler
    text = before + count + filler
    for at in range(len(count) + 1):
        pieces = [text[: len(before) + at], text[len(before) + at :]]
        assert counts(pieces) == counts([b"[ " * 9 + count])


@pytest.mark.parametrize("before", [b"", b"x" * 90])
def test_a_list_whose_beginning_comes_behind_a_small_piece(before: bytes) -> None:
    text = before + b"[" + b" " * 5000 + COUNTS[0] + b"x" * 5000 + COUNTS[0]
    assert counts([b" ", text])[:2] == [bool(before), 20 if before else 40]
