"""Decides how the fleet's members can change: duties, conflicts and differences. Pure.

The replicas of the fleet have three origins, in the order of precedence: the configuration file,
the admin API, and the sources of discovery (`discovery/roster.py`). A reload compares the replicas
of the file with the file. It keeps the replicas that the API added, except the replicas whose ID or
address the file now lists. The entry of the file replaces such a replica.

A replica has one duty. A cordoned replica gets no new request; it finishes its requests and is
still probed. The same applies to a draining replica. Its state also shows when its last request has
ended.

Must never: change a replica, do I/O, or read a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from router.config.address import parse_replica_url
from router.config.model import Replica as Config


class Duty:
    """The operator's setting for a replica. Plain numbers, because the fleet's table reads them."""

    IN_SERVICE: Final = 0
    CORDONED: Final = 1
    DRAINING: Final = 2


# The operator's actions on one replica. Every action may be repeated.
CORDON: Final = "cordon"
UNCORDON: Final = "uncordon"
DRAIN: Final = "drain"
ACTIONS: Final = (CORDON, UNCORDON, DRAIN)


# The states of a replica whose duty is DRAINING.
DRAINING: Final = "draining"
DRAINED: Final = "drained"


def duty_after(action: str, duty: int) -> int:
    """Return the duty of a replica after one of `ACTIONS`.

    `cordon` does not change a draining replica, because it is cordoned already.
    """
    if action == UNCORDON:
        return Duty.IN_SERVICE
    if action == DRAIN:
        return Duty.DRAINING
    return max(duty, Duty.CORDONED)


def duty_word(duty: int, inflight: int) -> str:
    """Return the state of a cordoned or draining replica as one word, for people and metrics.

    `inflight`: its attempts in progress.
    """
    if duty == Duty.CORDONED:
        return "cordoned"
    return DRAINING if inflight else DRAINED


def conflict(new: Config, members: Iterable[Config]) -> str:
    """Return why `new` cannot join `members`, as `field: text`; "" if it can.

    The URLs of all replicas are valid.
    """
    engine = parse_replica_url(new.url).engine
    for member in members:
        if member.id == new.id:
            return f"id: {new.id!r} is already the id of a replica"
        if parse_replica_url(member.url).engine == engine:
            return f"url: is the same engine as the replica {member.id!r}"
    return ""


class Difference(NamedTuple):
    """How the members of a fleet change. The lists contain IDs of replicas."""

    joined: list[str]
    moved: list[str]  # The URL changed, so that the ID names another engine.
    changed: list[str]  # Only other settings changed.
    left: list[str]

    def __bool__(self) -> bool:
        return any(self)


def difference(known: Mapping[str, Config], wanted: Mapping[str, Config]) -> Difference:
    """Compare the members before and after a change. Both mappings are by ID."""
    stayed = [name for name in wanted if name in known and wanted[name] != known[name]]
    return Difference(
        [name for name in wanted if name not in known],
        [name for name in stayed if wanted[name].url != known[name].url],
        [name for name in stayed if wanted[name].url == known[name].url],
        [name for name in known if name not in wanted],
    )


def kept(added: Iterable[Config], listed: Iterable[Config]) -> list[Config]:
    """Return the replicas of the admin API that remain in the fleet after a reload.

    `listed`: the replicas of the configuration file.
    """
    file = list(listed)
    ids = {replica.id for replica in file}
    engines = {parse_replica_url(replica.url).engine for replica in file}
    return [
        replica
        for replica in added
        if replica.id not in ids and parse_replica_url(replica.url).engine not in engines
    ]
