"""Counts in large answers are found as in small ones, at the cost of a search for one byte."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from router.dispatch.usage.token_counts import BodyEnd
from router.dispatch.usage.usage_numbers import Numbers

NAMES = (b"prompt_tokens", b"cached_tokens", b"eval_count", b"prompt_eval_count", b"prompt_n")
COUNTS = [b'"%b": %d,' % (name, 7 + len(name)) for name in NAMES]
# Text without an underscore, with many of them, and with apparent ends of a name.
FILLERS = [b"x" * 5000, b"a_b " * 1500, b'"a_n "' * 900, b"_" * 5000, b'"a_count":1,' * 500, b"["]


def numbers(pieces: list[bytes]) -> list[int | None]:
    found = Numbers()
    for piece in pieces:
        found.feed(piece)
    return [found.is_of_one, *(found.get(name) for name in NAMES)]


def cut(text: bytes, size: int) -> list[bytes]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(COUNTS + FILLERS), max_size=9), st.integers(4097, 20_000))
@example([FILLERS[0], COUNTS[2], FILLERS[0]], 5005)
@example([FILLERS[3], COUNTS[0]], 100_000)
@example([b"[", COUNTS[0], FILLERS[0], COUNTS[0], FILLERS[1]], 4097)
def test_a_count_is_found_however_large_the_pieces_are(parts: list[bytes], size: int) -> None:
    text = b"".join(parts)
    assert numbers(cut(text, size)) == numbers(cut(text, 1000))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("filler", FILLERS[:-1])
def test_a_count_across_two_large_pieces(count: bytes, filler: bytes) -> None:
    """In a list the counts are added up, so that counting one twice would be noticed."""
    before = b"[" + filler
    text = before + count + filler
    for at in range(len(count) + 1):
        pieces = [text[: len(before) + at], text[len(before) + at :]]
        assert numbers(pieces) == numbers([b"[ " * 9 + count])


@pytest.mark.parametrize("before", [b"", b"x" * 90])
def test_a_list_whose_beginning_comes_behind_a_small_piece(before: bytes) -> None:
    text = before + b"[" + b" " * 5000 + COUNTS[0] + b"x" * 5000 + COUNTS[0]
    assert numbers([b" ", text])[:2] == [bool(before), 20 if before else 40]


def test_lines_are_counted_in_pieces_of_any_size() -> None:
    end = BodyEnd()
    for piece in (b'{"a": 1}\n' * 1000, b"x" * 9000, b'{"a": 1}\n{}\n'):
        assert end.feed(piece) == piece
    assert end.lines == 1002


@pytest.mark.parametrize("text", [b"0.0123456," * 26_000, b"x_y," * 64_000, b"_n" * 128_000])
def test_no_answer_costs_more_than_a_few_searches(text: bytes) -> None:
    def took_s() -> float:
        end = BodyEnd()
        began = process_time()
        for _ in range(4):
            end.feed(text)
        return process_time() - began

    def searches_s() -> float:
        began = process_time()
        for _ in range(4):
            for needle in (b'_tokens"', b'eval_count"', b'_n"', b"}\n"):
                assert needle not in text
        return process_time() - began

    least = min(took_s() for _ in range(5))
    assert least < 3 * min(searches_s() for _ in range(5)) + 0.001
