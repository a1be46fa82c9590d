"""What the monitor learns about one address. All data-parallel ranks of the address share it."""

from __future__ import annotations

from router.config.address import parse_replica_url
from router.wire.pool import Pool


class Endpoint:
    """One address, the connections to it, and the answers to requests of the router itself.

    Only the monitor (`fleet/monitor/`) writes it.
    """

    __slots__ = (
        "address",
        "asked_at",
        "base_path",
        "by_priority",
        "host_line",
        "list_status",
        "low_first",
        "metrics_on",
        "pool",
        "refuses",
        "server",
    )

    def __init__(self, url: str, pool: Pool | None) -> None:
        """`pool`: the connections; `None` if there are none, as in a simulation."""
        self.address = parse_replica_url(url)
        self.host_line = b"host: " + self.address.authority.encode("ascii")
        self.base_path = self.address.base_path.encode("ascii")
        self.pool = pool
        self.refuses = False  # Whether the last probe or poll could not connect.
        self.server = ""  # The header `Server` of the last answer to a probe or a poll.
        # The status of the last answer to /v1/models; 0: there was no answer.
        self.list_status = 0
        # Time at which the current poll, or else the last poll, was sent (monotonic seconds).
        self.asked_at = 0.0
        # Whether the engine orders requests by priority; None: the engine does not report it.
        self.by_priority: bool | None = None
        # Whether the engine serves lower priority numbers first; None: it does not report that.
        self.low_first: bool | None = None
        # Whether the engine has Prometheus metrics; None: the engine does not report it.
        self.metrics_on: bool | None = None

    def continues(self, other: Endpoint) -> None:
        """Copy what identifies the server. Both objects stand for the same engine."""
        self.server = other.server
