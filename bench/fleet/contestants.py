"""The compared routers: Hedgerow once per policy, and every peer that is installed.

Each router has all engines as upstreams. The other routers (peers) run as in the overhead bench,
but with the routing policy that their authors recommend for a fleet of engines. That is the
cache-aware policy if the router has one, else least connections.

Two contestants are for comparison only: the oracle, which knows more than a router can know, and a
second run of Hedgerow's default policy. The difference between Hedgerow's two runs is the noise.
"""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass

from bench.fleet import stream
from bench.fleet.engines import MODEL
from bench.overhead.packaged import SglangRouter, VllmRouter
from bench.overhead.peers import Haproxy, Nginx
from router.lab.overhead.processes import free_port
from router.lab.overhead.routers import Hedgerow, Peer, PeerError, Site

SETTLE_S = 0.5  # wait after a router's first answer, in which it learns about its replicas


@dataclass(frozen=True, slots=True)
class FleetSite(Site):
    """The resources of a measured router, and the port of the emulated engines' oracle."""

    oracle: int = 0


class Ready(Peer):
    """A router that is ready after one whole answer. If it reports its replicas, it lists all."""

    tells_workers = False

    def _one_request(self) -> str:
        body = stream.body(MODEL, [{"role": "user", "content": "Are you there?"}], 1)
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            head = {"Content-Type": "application/json", "Authorization": "Bearer sk-bench"}
            link.request("POST", "/v1/chat/completions", body, head)
            answer = link.getresponse()
            text = answer.read()
        finally:
            link.close()
        if answer.status != 200 or b"[DONE]" not in text:
            return f"{answer.status} {text[:200]!r}"
        known = workers_seen(self.port) if self.tells_workers else None
        if known is not None and known < len(self.site.upstreams):
            return f"knows {known} of {len(self.site.upstreams)} replicas"
        return ""

    def start(self) -> None:
        super().start()
        time.sleep(SETTLE_S)


class HedgerowWith(Ready, Hedgerow):
    """Hedgerow with one routing policy and otherwise default settings."""

    policy = ""

    def config(self) -> dict[str, object]:
        return {
            **super().config(),
            "routing": {"policy": self.policy},
            "drain": {"lame_duck": 0.0, "grace": 0.5},  # no client is connected when a run ends
        }


def hedgerow(policy: str) -> type[HedgerowWith]:
    """Return the class that starts Hedgerow with this routing policy."""
    return type(
        f"Hedgerow_{policy}",
        (HedgerowWith,),
        {"name": f"hedgerow {policy}", "policy": policy, "settings": f"as shipped, {policy}"},
    )


def again(kind: type[Ready]) -> type[Ready]:
    """Return the same router under another name. Its second run in a round measures the noise."""
    settings = f"{kind.name} once more in each round, for the noise"
    return type(kind.__name__, (kind,), {"name": again_name(kind.name), "settings": settings})


def again_name(name: str) -> str:
    """The name of a router in its second run in a round."""
    return f"{name} (again)"


class Oracle(Ready):
    """No router: a port of the emulated engines that chooses by the true state of each."""

    name = "oracle"
    settings = (
        "no router: a port of the emulated engines that sees the queue, batch and prefix cache of "
        "each, and sends a request where its own first token comes earliest; greedy, so no bound"
    )

    def version(self) -> str:
        return "-"

    def start(self) -> None:
        assert isinstance(self.site, FleetSite)
        self.port = self.site.oracle
        if problem := self._one_request():
            raise PeerError(problem)


class HaproxyFleet(Ready, Haproxy):
    pass


class NginxFleet(Ready, Nginx):
    pass


class VllmRouterFleet(Ready, VllmRouter):
    settings = (
        "--policy cache_aware, its defaults; it has every replica tokenize every prompt, work for "
        "which emulated replicas share one CPU: on a real fleet its TTFT would be lower"
    )
    tells_workers = True

    def command(self) -> list[str]:
        return [
            *(self.program("vllm-router"), "--host", "127.0.0.1", "--port", str(self.port)),
            *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())),
            *("--policy", "cache_aware", "--worker-urls", *self.urls()),
        ]


class SglangRouterFleet(Ready, SglangRouter):
    settings = "--policy cache_aware, its defaults"
    tells_workers = True

    def command(self) -> list[str]:
        return [
            *(self.program("sglang-router"), "launch"),
            *("--host", "127.0.0.1", "--port", str(self.port)),
            *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())),
            *("--policy", "cache_aware", "--worker-urls", *self.urls()),
        ]


PEERS: dict[str, type[Ready]] = {
    peer.name: peer for peer in (VllmRouterFleet, SglangRouterFleet, HaproxyFleet, NginxFleet)
}


def workers_seen(port: int) -> int | None:
    """Number of replicas that a router reports (`/workers` of vllm-router and sglang-router).

    Returns None if the router does not report its replicas.
    """
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        link.request("GET", "/workers")
        answer = link.getresponse()
        said = json.loads(answer.read())
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        link.close()
    return len(said["workers"]) if isinstance(said, dict) and "workers" in said else None
