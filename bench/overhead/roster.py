"""Lists all routers that the bench can measure, in the order in which they are measured."""

from __future__ import annotations

from bench.overhead.packaged import Envoy, Litellm, SglangRouter, VllmRouter
from bench.overhead.peers import Direct, Haproxy, HaproxyQuiet, HedgerowWorkers, Nginx
from router.lab.overhead.routers import Hedgerow, Peer

PEERS: dict[str, type[Peer]] = {
    peer.name: peer
    for peer in (
        *(Direct, Haproxy, Hedgerow, Nginx, Envoy, VllmRouter, SglangRouter, Litellm),
        *(HaproxyQuiet, HedgerowWorkers),
    )
}
_ASKED = (HaproxyQuiet.name, HedgerowWorkers.name)  # only measured if they are named
DEFAULT = tuple(name for name in PEERS if name not in _ASKED)
