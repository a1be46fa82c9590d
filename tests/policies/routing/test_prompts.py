import pytest

from policies.contract import RequestView
from policies.routing.prompts import uncached_tokens


@pytest.mark.parametrize(("held", "expected"), [(0, 1300), (4, 788), (10, 20), (11, 0)])
def test_what_a_cache_spares_is_never_more_than_the_prompt(held: int, expected: float) -> None:
    view = RequestView(prompt_tokens=1300, blocks=tuple(range(11)), block_tokens=128.0)
    assert uncached_tokens(view, held) == expected
