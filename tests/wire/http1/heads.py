"""The fields of a head as a value that can be compared, and a reader with its caller."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from router.wire.http1.heads import BodyReading, Proxies, RequestHead, ResponseHead
from router.wire.http1.request_reader import HEADED, RequestReader
from router.wire.http1.routing_headers import RoutingHeaders

_METHODS = ("copy", "drop")


def fields_of(head: object) -> list[str]:
    return [name for name in dir(head) if not name.startswith("_") and name not in _METHODS]


def told(
    head: RequestHead | ResponseHead | RoutingHeaders | Proxies | BodyReading | None,
) -> Any:
    """A namespace with every field of the head; None for no head."""
    if head is None:
        return None
    values = {name: getattr(head, name) for name in fields_of(head)}
    if isinstance(head, RequestHead):
        values["routing"] = told(head.routing)
        values["proxies"] = told(head.proxies)
        values["reading"] = told(head.reading)
    return SimpleNamespace(**values)


def feed(
    reader: RequestReader, data: bytes, check: Callable[[RequestHead], object] = lambda head: None
) -> None:
    """Passes bytes to a reader as a connection does. `check` gets each head before its body."""
    rest = reader.feed(data)
    if reader.state == HEADED:
        check(reader.head)
        reader.begin_body()
        assert reader.feed(rest) == b""
