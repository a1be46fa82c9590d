"""The interface through which the admin listener calls the router, and the query of GET /usage.

Must never: import the admin listener.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Protocol

from router.core.periods import parse_date


class Refused(Exception):
    """The router refuses an admin request. `problems`: one line for each invalid field."""

    def __init__(
        self, status: int, code: str, message: str, problems: Sequence[str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.problems = problems


class MemberActions(Protocol):
    """Changes of the fleet's members.

    Every call returns the replica as a value that can be encoded as JSON, or raises Refused.
    """

    def show(self, replica_id: str) -> Awaitable[Mapping[str, Any]]:
        """Return one replica, also while it finishes its requests after `remove`."""

    def add(self, entry: object) -> Awaitable[Mapping[str, Any]]:
        """Adds a replica. `entry`: like an entry of `replicas` in the configuration file."""

    def remove(self, replica_id: str) -> Awaitable[Mapping[str, Any]]:
        """Removes a replica. It gets no new request, and finishes its present requests."""

    def set_duty(self, replica_id: str, action: str) -> Awaitable[Mapping[str, Any]]:
        """Cordons, uncordons or drains a replica. `action`: one of `membership.ACTIONS`."""

    def reclaim(self, replica_id: str, seconds: float | None) -> Awaitable[Mapping[str, Any]]:
        """Drains a replica whose machine goes away after `seconds`; `None`: as configured."""


class AdminActions(Protocol):
    """The router's operations that the admin listener calls."""

    @property
    def members(self) -> MemberActions:
        """Changes of the fleet's members."""

    def ready(self) -> tuple[bool, str]:
        """Return whether the router accepts new requests, and if not, the reason."""

    def replicas(self) -> Awaitable[Sequence[Mapping[str, Any]]]:
        """Return one mapping per replica, which can be encoded as JSON."""

    def hedging(self) -> Awaitable[Mapping[str, Any]]:
        """Return the state of hedging as a mapping that can be encoded as JSON."""

    def queue(self) -> Awaitable[Mapping[str, Any]]:
        """Return the waiting requests by class and tenant, as a mapping for JSON."""

    def usage(self, first: int, last: int) -> Awaitable[Mapping[str, Any]]:
        """Return the usage of tenants from day `first` to day `last`, as a mapping for JSON.

        Raises Refused if the usage of single days is not known.
        """

    def usage_csv(self, first: int, last: int) -> Awaitable[bytes]:
        """Return the same usage as CSV, with a row for each day, tenant and class."""

    def reload(self) -> Awaitable[str]:
        """Reads the configuration again. Returns the hash of the configuration in force.

        If the new configuration cannot be used, raises ConfigError and keeps the old configuration.
        """

    def drain(self) -> None:
        """Starts draining and returns at once. A second call does nothing."""


FIRST: Final = -1_000_000  # days since 1970: before every day that a clock can show
LAST: Final = 3_000_000
_NAMES: Final = ("from", "to", "format")
_FORMATS: Final = ("json", "csv")


class UsageQuery(NamedTuple):
    """The days from `first` to `last` (days since 1970), and whether the answer is CSV."""

    first: int = FIRST
    last: int = LAST
    is_csv: bool = False


def read_query(pairs: Iterable[tuple[str, str]]) -> UsageQuery:
    """Return the query with these names and values. Raises Refused."""
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in _NAMES:
            raise _refused(f"{name!r} is unknown; known are {', '.join(_NAMES)}")
        if name in found:
            raise _refused(f"{name!r} is stated twice")
        found[name] = value
    style = found.get("format", "json")
    if style not in _FORMATS:
        raise _refused(f"format must be one of {', '.join(_FORMATS)}, not {style!r}")
    first, last = FIRST, LAST
    try:
        if "from" in found:
            first = parse_date(found["from"])
        if "to" in found:
            last = parse_date(found["to"])
    except ValueError as err:
        raise _refused(str(err)) from None
    if first > last:
        raise _refused("from is after to")
    return UsageQuery(first, last, style == "csv")


def _refused(why: str) -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, "bad_query", why)
