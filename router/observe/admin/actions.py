"""The interface through which the admin listener calls the router.

Must never: import the admin listener.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol


class AdminActions(Protocol):
    """The router's operations that the admin listener calls."""

    def ready(self) -> tuple[bool, str]:
        """Returns whether the router accepts new requests, and if not, the reason."""

    def replicas(self) -> Sequence[Mapping[str, Any]]:
        """Returns one mapping per replica, which can be encoded as JSON."""

    def hedging(self) -> Mapping[str, Any]:
        """Returns the state of hedging as a mapping that can be encoded as JSON."""

    def queue(self) -> Mapping[str, Any]:
        """Returns the waiting requests by class and tenant, as a mapping for JSON."""

    def usage(self) -> Awaitable[Mapping[str, Any]]:
        """Returns the usage of tenants since the start, as a mapping for JSON."""

    def reload(self) -> Awaitable[str]:
        """Reads the configuration again. Returns the hash of the configuration in force.

        If the new configuration cannot be used, raises ConfigError and keeps the old configuration.
        """

    def drain(self) -> None:
        """Starts draining and returns at once. A second call does nothing."""
