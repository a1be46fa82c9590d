"""A copy of a head has all values of the original, and a change of the copy stays in the copy."""

from typing import Any

import pytest

from router.wire.http1.heads import BodyReading, Proxies, RequestHead, ResponseHead
from router.wire.http1.routing_headers import RoutingHeaders
from tests.wire.http1.heads import fields_of

KINDS: list[Any] = [RequestHead, ResponseHead]


def other(name: str, value: object) -> Any:
    """A value of the field's type that no other field has."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int) or name == "content_length":
        return sum(name.encode())
    if isinstance(value, RoutingHeaders):
        return RoutingHeaders()
    if isinstance(value, Proxies | BodyReading):
        return Proxies() if isinstance(value, Proxies) else BodyReading(is_json=False)
    if isinstance(value, list):
        return [name.encode()]
    return name.encode()


def filled(kind: Any) -> Any:
    head = kind()
    for name in fields_of(head):
        setattr(head, name, other(name, getattr(head, name)))
    return head


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_has_every_value(kind: Any) -> None:
    head = filled(kind)
    copy = head.copy()
    assert copy is not head
    assert len(fields_of(head)) > 10
    for name in fields_of(head):
        assert getattr(copy, name) == getattr(head, name), name
    assert copy.lines is head.lines


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_changes_alone(kind: Any) -> None:
    head, untouched = kind(), kind()
    copy = head.copy()
    for name in fields_of(copy):
        setattr(copy, name, other(name, getattr(copy, name)))
    for name in fields_of(head):
        assert getattr(head, name) == getattr(untouched, name), name
