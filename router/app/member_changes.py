"""Changes the members of the fleet: replicas join, move, get other settings, or leave.

The admin API, a reload and discovery use the same steps. All of them happen in one turn of the
event loop, so no request sees a part of a change. Replicas that stay get their new settings first.
Then the other replicas join and leave. The requests that wait for a connection to a replica that
leaves go to other replicas at the end, so they find only the new fleet.

Must never: decide which replicas are members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from router.app.parts import Parts
from router.app.upstream import NO_POOL, Upstream
from router.config.model import Config, Replica as ReplicaConfig
from router.dispatch.rules import pool_timeouts
from router.fleet.data_parallel import rank_config
from router.fleet.replica import Replica


def make_replicas(
    parts: Parts, config: Config, upstream: Upstream, wanted: Iterable[ReplicaConfig]
) -> dict[str, Replica]:
    """Creates the replicas that are new or whose URL or TLS settings changed. The result is by ID.

    If the settings `upstream` of `config` differ from those in force, all replicas are created.
    """
    moves_all = config.upstream != parts.config.upstream
    made: dict[str, Replica] = {}
    for replica in wanted:
        known = parts.fleet.replicas.get(replica.id)
        if (
            known is None
            or moves_all
            or replica.url != known.config.url
            or _connection(replica, config) != _connection(known.config, parts.config)
        ):
            made[replica.id] = parts.make_replica(replica, config, upstream)
    return made


def _connection(replica: ReplicaConfig, config: Config) -> tuple[object, ...]:
    """The settings of a replica's pool that its existing connections depend on."""
    pool = config.pools.get(replica.pool, NO_POOL)
    return pool.external, pool.ca_file, pool.server_name


def change_members(
    parts: Parts,
    present: Iterable[Replica],
    wanted: Mapping[str, ReplicaConfig],
    made: Mapping[str, Replica],
) -> None:
    """Turns the members `present` into `wanted` (by ID). Members that stay keep their state.

    `made`: the result of `make_replicas`. `parts.upstream` has learned the replicas in `wanted`.
    Members that leave finish their requests. The configuration that is in force gives the rules of
    all replicas.
    """
    fleet = parts.fleet
    members = [*present]
    moved = [replica for replica in members if _adopt(parts, replica, wanted.get(replica.id))]
    gone = [replica for replica in members if replica.id in made or replica.id not in wanted]
    for replica in gone:
        _leaves(parts, replica, made.get(replica.id))
    if gone or made:
        fleet.change([replica.id for replica in gone], [*made.values()])
    else:
        parts.context.chooser.look_for_spot(fleet.replicas)
        fleet.rebuild()
    for replica in made.values():
        parts.watch(replica)
    for replica in gone:
        _forget(parts, replica, is_member=replica.id in wanted)
    for addon in parts.addons.values() if moved else ():
        addon.regions_changed()


def _leaves(parts: Parts, replica: Replica, successor: Replica | None) -> None:
    """Ends the probes of a replica. `successor`: the one that replaces it, if any."""
    parts.unwatch(replica)
    if successor is not None and successor.config.url == replica.config.url:
        successor.continues(replica)
        parts.reclaims.passes(replica, successor)


def _forget(parts: Parts, replica: Replica, *, is_member: bool) -> None:
    """Forgets a replica that has left. `is_member`: another one has its ID."""
    for rank in replica.ranks:
        if rank.id not in parts.fleet.replicas:
            parts.metrics.forget_replica(rank.id)
    if not is_member:
        parts.upstream.forget(replica.id)


def _adopt(parts: Parts, replica: Replica, entry: ReplicaConfig | None) -> bool:
    """Gives a member that stays its new settings. Returns whether its region has changed."""
    config = parts.config
    if entry is None or entry.url != replica.config.url:
        return False
    has_moved = entry.region != replica.region
    for rank in replica.ranks:
        rank.adopt(rank_config(entry, rank), config.health, parts.upstream.access.get(replica.id))
    if entry.data_parallel_ranks is not None:
        parts.fleet.set_ranks(replica, entry.data_parallel_ranks)
    replica.pool.adopt(config.limits, pool_timeouts(config))
    return has_moved
