"""Counts connections. The counts continue when connection pools or ports are replaced.

Must never: make decisions, or count anything that belongs to a request.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Tally:
    """Counts since the start of the process. Compiled code updates these fields directly."""

    def __init__(self) -> None:
        self.client_connections = 0  # Accepted connections of clients.
        self.connections_opened = 0  # Opened connections to replicas.
        self.connections_reused = 0  # Attempts that were sent over a pooled connection.
