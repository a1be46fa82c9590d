"""A notice that a spot machine is reclaimed."""

from __future__ import annotations

from typing import Final, NamedTuple

UNSTATED: Final = -1.0  # The notice does not state when the machine goes away.


class Notice(NamedTuple):
    """A machine is reclaimed. Without `replicas` and `node`, it applies to all spot replicas."""

    key: str  # Two equal keys of one source are the same notice.
    seconds: float = UNSTATED  # Seconds until the machine goes away.
    replicas: tuple[str, ...] = ()  # The IDs of the replicas.
    node: str = ""  # The `node` of the replicas.
