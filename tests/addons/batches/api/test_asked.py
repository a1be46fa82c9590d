"""Query strings of lists: the limit."""

from __future__ import annotations

import pytest

from router.addons.batches.api.asked import Refused, limit_of


def test_a_limit() -> None:
    assert limit_of({}, 20, 100) == 20
    assert [limit_of({"limit": text}, 20, 100) for text in ("1", "007", "100")] == [1, 7, 100]


@pytest.mark.parametrize(
    "text", ["0", "101", "-1", "", "1_0", " 1", "+1", "1.0", "\u0661", "9" * 5000]
)
def test_a_limit_that_is_refused(text: str) -> None:
    with pytest.raises(Refused) as caught:
        limit_of({"limit": text}, 20, 100)
    assert (caught.value.status, caught.value.code) == (400, "invalid_limit")
