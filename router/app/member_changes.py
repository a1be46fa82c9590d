"""Changes the members of the fleet: replicas join, move, get other settings, or leave.

A reload and discovery use the same steps. All of them happen in one turn of the event loop, so no
request sees a part of a change.

Must never: decide which replicas are members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from router.app.parts import Parts, Upstream
from router.config.model import Config
from router.config.model import Replica as ReplicaConfig
from router.fleet.replica import Replica


def make_replicas(
    parts: Parts, config: Config, upstream: Upstream, wanted: Iterable[ReplicaConfig]
) -> dict[str, Replica]:
    """Creates the replicas that are new or whose URL changed, or all if the connection settings of
    `config` differ from those in force. The result is by ID.
    """
    moves_all = config.upstream != parts.config.upstream
    made: dict[str, Replica] = {}
    for replica in wanted:
        known = parts.fleet.replicas.get(replica.id)
        if known is None or moves_all or replica.url != known.config.url:
            made[replica.id] = parts.make_replica(replica, config, upstream)
    return made


def change_members(
    parts: Parts,
    present: Iterable[Replica],
    wanted: Mapping[str, ReplicaConfig],
    made: Mapping[str, Replica],
) -> None:
    """Turns the members `present` into `wanted` (by ID). Members that stay keep their state.

    `made`: the result of `make_replicas`. Members that leave finish their requests. The
    configuration that is in force gives the rules of all replicas. New members join before others
    leave.
    """
    fleet, config = parts.fleet, parts.config
    gone: list[Replica] = []
    for replica in [*present]:
        successor = made.get(replica.id)
        if successor is not None:
            parts.unwatch(replica)
            if successor.config.url == replica.config.url:
                successor.continues(replica)
                parts.reclaims.passes(replica, successor)
            fleet.remove(replica.id, successor)
            parts.watch(successor)
        elif replica.id not in wanted:
            gone.append(replica)
        else:
            replica.adopt(wanted[replica.id], config.health)
            replica.pool.adopt(config.limits, config.timeouts)
    joined = [replica for name, replica in made.items() if name not in fleet.replicas]
    fleet.add_all(joined)
    for replica in joined:
        parts.watch(replica)
    parts.retire_all(gone)
    parts.look_for_spot()
    fleet.rebuild()
