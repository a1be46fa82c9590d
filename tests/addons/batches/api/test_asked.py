"""Query strings of lists: the limit."""

import pytest

from router.addons.batches.api.asked import Refused, json_answer, limit_of
from router.addons.batches.api.shapes import batch_object
from router.addons.batches.store.rows import Batch


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


def test_json_of_the_books_is_passed_on_unread() -> None:
    """A page of 100 batches has up to 6 MiB of JSON; parsing it blocked the loop for 20 ms."""
    columns = dict.fromkeys(Batch._fields, 0)
    batch = Batch(**{**columns, "metadata": '{ "a" : "b" }', "errors": "[ 1 ]"})  # type: ignore[arg-type]
    body = json_answer(batch_object(batch)).body
    assert isinstance(body, bytes)
    assert b'"metadata":{ "a" : "b" }' in body
    assert b'"errors":{"object":"list","data":[ 1 ]}' in body


def test_there_may_be_none() -> None:
    columns = dict.fromkeys(Batch._fields, 0)
    shown = batch_object(Batch(**{**columns, "metadata": None, "errors": None}))  # type: ignore[arg-type]
    assert (shown["metadata"], shown["errors"]) == (None, None)
