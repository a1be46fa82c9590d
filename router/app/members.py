"""Applies the admin API's changes of the fleet's members: add, remove, cordon, drain.

The decisions are in `fleet/membership.py`. A change is applied in one turn of the event loop, so no
request sees a part of the change. `fleet/membership.py` also decides which replicas of the admin
API remain in the fleet at a reload.

Must never: change the configuration that is in force, or write a file.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from router.app import report
from router.app.member_changes import change_members
from router.app.parts import Parts
from router.app.reclaims import ADMIN
from router.config.load import parse_replica
from router.core.errors import ConfigError
from router.fleet.membership import conflict, duty_after
from router.fleet.notice import UNSTATED
from router.fleet.replica import Replica
from router.observe.admin.actions import Refused
from router.observe.events import log_event


class Members:
    """The fleet's members, for the admin API (`MemberActions`). Every call raises Refused."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        # Whether another process has got the state of the fleet, so that a change would be lost.
        self.is_handed_over = False

    def show(self, replica_id: str) -> Mapping[str, Any]:
        return report.replica(self._parts, self._find(replica_id, or_leaving=True))

    def add(self, entry: object) -> Mapping[str, Any]:
        self._check_not_handed_over()
        parts = self._parts
        try:
            config = parse_replica(entry, parts.config)
        except ConfigError as err:
            status = HTTPStatus.UNPROCESSABLE_ENTITY
            text = "the replica is invalid"
            raise Refused(status, "bad_replica", text, err.problems) from None
        why = conflict(config, [replica.config for replica in parts.fleet.members])
        if why:
            raise Refused(HTTPStatus.CONFLICT, "conflict", why)
        most = parts.config.discovery.replicas_max
        if len(parts.origins.added) >= most:
            text = f"there are {most} replicas of the admin API (`discovery.replicas_max`)"
            raise Refused(HTTPStatus.CONFLICT, "too_many_replicas", text)
        try:
            parts.upstream.learn(config, parts.config, is_added=True)
        except ConfigError as err:
            status = HTTPStatus.UNPROCESSABLE_ENTITY
            text = "the replica is invalid"
            raise Refused(status, "bad_replica", text, err.problems) from None
        replica = parts.make_replica(config, parts.config, parts.upstream)
        parts.origins.added[config.id] = config
        change_members(parts, (), {config.id: config}, {config.id: replica})
        withheld = {}
        if replica.access is not None and not replica.access.gets_any:
            withheld["credential"] = "none, because admin.token is not set"
        _log("replica added", replica, **withheld)
        return report.replica(parts, replica)

    def remove(self, replica_id: str) -> Mapping[str, Any]:
        parts = self._parts
        replica = self._member(replica_id, or_leaving=True)
        if not replica.removed:
            change_members(parts, [replica], {}, {})
            parts.origins.added.pop(replica_id, None)
            parts.origins.discovered.pop(replica_id, None)
            parts.origins.roster.removed(replica.config)
            _log("replica removed", replica)
        return report.replica(parts, replica)

    def set_duty(self, replica_id: str, action: str) -> Mapping[str, Any]:
        parts = self._parts
        replica = self._member(replica_id)
        before = replica.standing.duty
        parts.reclaims.decided(replica, action)
        parts.fleet.set_duty(replica, duty_after(action, before))
        if replica.standing.duty != before:
            _log(f"replica {action}", replica)
        return report.replica(parts, replica)

    def reclaim(self, replica_id: str, seconds: float | None) -> Mapping[str, Any]:
        parts = self._parts
        replica = self._member(replica_id)
        parts.reclaims.reclaim(replica, UNSTATED if seconds is None else seconds, ADMIN)
        return report.replica(parts, replica)

    def _member(self, replica_id: str, *, or_leaving: bool = False) -> Replica:
        """Return a replica that can be changed. A further rank of an address cannot."""
        self._check_not_handed_over()
        replica = self._find(replica_id, or_leaving=or_leaving)
        if replica.rank:
            first = replica.ranks[0].id
            text = f"{replica_id!r} is a data-parallel rank of {first!r}, which can be changed"
            raise Refused(HTTPStatus.CONFLICT, "is_a_rank", text)
        return replica

    def _check_not_handed_over(self) -> None:
        if self.is_handed_over:
            text = "a new process takes over; send this request again, on a new connection"
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "restarting", text)

    def _find(self, replica_id: str, *, or_leaving: bool = False) -> Replica:
        """Return a replica.

        `or_leaving`: a removed replica that still finishes its requests is returned, too.
        """
        fleet = self._parts.fleet
        replica = fleet.replicas.get(replica_id)
        if replica is None and or_leaving:
            replica = next((r for r in fleet.leaving if r.id == replica_id), None)
        if replica is None:
            text = f"there is no replica {replica_id!r}"
            raise Refused(HTTPStatus.NOT_FOUND, "replica_not_found", text)
        return replica


def _log(what: str, replica: Replica, **more: str) -> None:
    log_event(
        logging.WARNING if more else logging.INFO,
        what,
        key=None,
        replica=replica.id,
        url=replica.config.url,
        inflight=replica.inflight,
        **more,
    )
