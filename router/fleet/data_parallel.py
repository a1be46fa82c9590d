"""Data-parallel ranks: the engine processes behind one address, each a replica of its own.

vLLM and SGLang can run several engines (ranks) behind one API server. The header
`x-data-parallel-rank` of a request chooses the rank. Each rank has its own batch, queue and KV
cache. So each rank is a replica in the fleet's table, with its own load, leases, gate, prefix index
and learned speed.

The first rank is the configured replica, the *lead*, with the replica's own ID. The other ranks
have the IDs `<id>@1`, `<id>@2` and so on. The ranks of one engine may be behind several addresses;
then the ranks of an address are numbered from another number than 0. The IDs, the KV events and the
header have the engine's numbers. But some front ends count from 0 in the header
(`Engine.local_ranks_at`). Everything that concerns the address belongs to the lead,
and applies to all of its ranks: settings, credential, connections, probes, the model list, polls,
duties, standby, and membership. Only the lead is probed and polled.

Must never: do I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from router.config.model import Replica as Config
from router.fleet.replica import Replica


def rank_config(config: Config, replica: Replica) -> Config:
    """Return the settings of a rank. `config`: those of its lead."""
    if not replica.rank:
        return config
    return msgspec.structs.replace(config, id=f"{config.id}@{replica.rank_number}")


def with_ranks(leads: Iterable[Replica]) -> list[Replica]:
    """Return these replicas, and the further ranks that each of them needs.

    A rank that is missing is made. Its address is in the state in which the lead is.
    """
    found: list[Replica] = []
    for lead in leads:
        ranks = [*lead.ranks[: lead.rank_count]]
        ranks += [_made(lead, rank) for rank in range(len(ranks), lead.rank_count)]
        join(ranks)
        found += ranks
    return found


def resized(
    lead: Replica, count: int, first: int | None
) -> tuple[Sequence[Replica], Sequence[Replica]] | None:
    """Set the number of ranks of an address. Returns the ranks that leave and those that are new.

    `first`: the engine's number of the first rank; `None`: as before. The result is `None` if the
    ranks stay as they are.
    """
    before = lead.ranks
    stays = min(count, len(before))
    if first is not None and first != lead.first_rank:
        lead.first_rank = first
        stays = 1
    if stays == len(before) == count:
        if lead.first_rank:
            join(before)  # Another front end may answer now.
        return None
    lead.rank_count = count
    lead.ranks = before[:stays]
    return before[stays:], with_ranks((lead,))[stays:]


def _made(lead: Replica, rank: int) -> Replica:
    config = msgspec.structs.replace(lead.config, id=f"{lead.config.id}@{lead.first_rank + rank}")
    made = Replica(config, lead.health.rules, None, lead.access, lead.endpoint)
    made.rank = rank
    made.continues(lead)
    made.rank_count = 1
    made.reports.await_polls(lead.reports.polls_awaited)
    return made


def join(ranks: Sequence[Replica]) -> None:
    """Make these replicas the ranks of one address. The first one is the lead."""
    joined, lead = tuple(ranks), ranks[0]
    local_at = lead.descriptor.local_ranks_at
    first = 0 if local_at and lead.endpoint.server == local_at else lead.first_rank
    for replica in ranks:
        replica.ranks = joined
        replica.rank_line = b""
        if len(ranks) > 1:
            replica.rank_line = b"\r\nx-data-parallel-rank: %d" % (first + replica.rank)
