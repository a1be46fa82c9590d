"""Lists the parts of the router whose cost is measured alone, in memory, with their goals.

`internal` measures their CPU time, `instructions` counts their instructions. Must never measure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Part:
    """One part. `goal_us` is the maximum CPU time in µs, or None if the part has no goal."""

    name: str
    title: str
    goal_us: float | None
    note: str


PARTS: Final = (
    Part(
        "internal",
        "internal overhead",
        15,
        "request parsed to upstream bytes written; sockets, HTTP parsing and JSON decoding "
        "excluded, as in the figure Bifrost publishes",
    ),
    Part(
        "json_request",
        "JSON request",
        None,
        "one whole request and its answer between transports in memory: everything but the kernel "
        "and the event loop",
    ),
    Part(
        "token",
        "token of a stream",
        None,
        "between transports in memory: a read with one token is parsed, counted and written to the "
        "client; without the turn of the event loop that writes it",
    ),
    Part(
        "decision_64",
        "decision, 64 replicas",
        15,
        "kv_aware and a prompt of 16 KB: prefix match, pick and insert; hashing excluded",
    ),
    Part("decision_1024", "decision, 1,024 replicas", 40, "the same in a larger fleet"),
    Part(
        "queue_10",
        "queue, depth 10",
        4,
        "a request that waits behind nine others, less a request that finds room: ticket, queue "
        "and its driver",
    ),
    Part(
        "queue_100k",
        "queue, depth 100,000",
        10,
        "the figure of depth 10, and what offer, grant and settling of a ticket cost more in the "
        "queue alone at this depth: the driver handles one request at any depth",
    ),
    Part(
        "hedging_never",
        "hedging, request never hedged",
        2,
        "a request of class normal with the default policy, less the same with the policy `off`",
    ),
    Part(
        "hedging_armed",
        "hedging, timer set and cancelled",
        None,
        "a request of class high with the policy `fixed`, less the same with the policy `off`",
    ),
)
