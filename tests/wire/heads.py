"""What a head says, as a value that can be compared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from router.wire.heads import RequestHead, ResponseHead


def told(head: RequestHead | ResponseHead | None) -> Any:
    """A namespace with every field of the head; None for none."""
    if head is None:
        return None
    names = [name for name in dir(head) if not name.startswith("_") and name != "copy"]
    return SimpleNamespace(**{name: getattr(head, name) for name in names})
