"""The interface through which the admin listener calls the router.

Must never: import the admin listener.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol


class AdminActions(Protocol):
    """The router's operations that the admin listener calls."""

    def ready(self) -> tuple[bool, str]:
        """Whether the router accepts new requests, and if not, the reason."""

    def replicas(self) -> Sequence[Mapping[str, Any]]:
        """One JSON-ready mapping per replica."""

    def hedging(self) -> Mapping[str, Any]:
        """The state of hedging, JSON-ready."""

    def queue(self) -> Mapping[str, Any]:
        """Waiting requests, by class and tenant, JSON-ready."""

    def usage(self) -> Awaitable[Mapping[str, Any]]:
        """The usage of tenants since the start, JSON-ready."""

    def reload(self) -> Awaitable[str]:
        """Read the configuration again; returns the hash of the configuration in force.

        Raises ConfigError and keeps the old configuration if the new one cannot be used.
        """

    def drain(self) -> None:
        """Start draining and return at once. A second call does nothing."""
