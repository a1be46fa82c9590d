"""Counts found by their names: which bytes are a count, and how several are combined."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dispatch.usage.usage_numbers import Numbers


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
    ],
)
def test_a_count(data: bytes) -> None:
    assert numbers(data).get(b"prompt_tokens") == 7


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"prompt_tokens":null}',
        b'{"prompt_tokens":"7"}',
        b'{"prompt_tokens":-7}',
        b'{"prompt_tokens":7.5}',
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
        assert len(found._carry) <= 64
