"""The fields of a head as a value that can be compared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from router.wire.http1.heads import RequestHead, ResponseHead
from router.wire.http1.routing_headers import RoutingHeaders


def told(head: RequestHead | ResponseHead | RoutingHeaders | None) -> Any:
    """A namespace with every field of the head; None for no head."""
    if head is None:
        return None
    names = [name for name in dir(head) if not name.startswith("_") and name != "copy"]
    values = {name: getattr(head, name) for name in names}
    if isinstance(head, RequestHead):
        values["routing"] = told(head.routing)
    return SimpleNamespace(**values)
