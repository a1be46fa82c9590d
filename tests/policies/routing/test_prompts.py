from __future__ import annotations

import pytest

from policies.contract import RequestView
from policies.routing.prompts import prompt_tokens, uncached_tokens


@pytest.mark.parametrize(
    ("counted", "blocks", "expected"), [(1300, 10, 1300), (0, 10, 1280), (0, 0, 0), (7, 0, 7)]
)
def test_tokens_are_what_was_counted_or_what_the_blocks_say(
    counted: int, blocks: int, expected: float
) -> None:
    view = RequestView(prompt_tokens=counted, blocks=tuple(range(blocks)), block_tokens=128.0)
    assert prompt_tokens(view) == expected


@pytest.mark.parametrize(("held", "expected"), [(0, 1300), (4, 788), (10, 20), (11, 0)])
def test_what_a_cache_spares_is_never_more_than_the_prompt(held: int, expected: float) -> None:
    view = RequestView(prompt_tokens=1300, blocks=tuple(range(11)), block_tokens=128.0)
    assert uncached_tokens(view, held) == expected
