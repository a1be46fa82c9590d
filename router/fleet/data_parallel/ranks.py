"""Data-parallel ranks: the engine processes behind one address, each a replica of its own.

vLLM and SGLang can run several engines (ranks) behind one API server. The header
`x-data-parallel-rank` of a request chooses the rank. Each rank has its own batch, queue and KV
cache. So each rank is a replica in the fleet's table, with its own load, leases, gate, prefix index
and learned speed.

The first rank is the configured replica, the *lead*, with the replica's own ID. The other ranks
have the IDs `<id>@1`, `<id>@2` and so on. Everything that concerns the address belongs to the lead,
and applies to all of its ranks: settings, credential, connections, probes, the model list, polls,
duties, standby, and membership. Only the lead is probed and polled.

Must never: do I/O.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from router.config.model import Replica as Config
from router.fleet.replica import Replica


def rank_config(config: Config, rank: int) -> Config:
    """Return the settings of a rank. `config`: those of its lead."""
    return msgspec.structs.replace(config, id=f"{config.id}@{rank}") if rank else config


def with_ranks(leads: Iterable[Replica]) -> list[Replica]:
    """Return these replicas, and the further ranks that each of them needs.

    A rank that is missing is made. Its address is in the state in which the lead is.
    """
    found: list[Replica] = []
    for lead in leads:
        ranks = [*lead.ranks[: lead.rank_count]]
        ranks += [_made(lead, rank) for rank in range(len(ranks), lead.rank_count)]
        _join(ranks)
        found += ranks
    return found


def _made(lead: Replica, rank: int) -> Replica:
    made = Replica(rank_config(lead.config, rank), lead.health.rules, lead.connections)
    made.rank = rank
    made.access = lead.access
    made.continues(lead)
    made.rank_count = 1
    made.polls_awaited = lead.polls_awaited
    return made


def _join(ranks: list[Replica]) -> None:
    joined = tuple(ranks)
    for replica in ranks:
        replica.ranks = joined
        replica.rank_line = b""
        if len(ranks) > 1:
            replica.rank_line = b"\r\nx-data-parallel-rank: %d" % replica.rank
