"""The JSON of files and batches as clients get it."""

from __future__ import annotations

from router.addons.batches.api.asked import json_answer
from router.addons.batches.api.shapes import batch_object
from router.addons.batches.store.rows import Batch


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
