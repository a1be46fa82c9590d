"""The compared routers: Hedgerow with and without hedging, Envoy and HAProxy.

Envoy and HAProxy get a timeout after which an urgent request is sent to another replica. The
timeout is the 95th percentile of the time to first token on the healthy fleet, which an operator
could read from a dashboard. The configuration favours Envoy and HAProxy: they resend only urgent
requests, always to another replica, and their buffers are large enough to resend each request.
"""

from __future__ import annotations

from collections.abc import Callable

from bench.fleet.contestants import HedgerowWith, Ready
from bench.hedging.http.traffic import URGENT
from bench.overhead.packaged import Envoy
from bench.overhead.peers import Haproxy
from router.lab.overhead.processes import free_port

BUFFER_BYTES = 128 * 1024  # a request must fit into this buffer, or HAProxy cannot send it again


class HedgerowHedging(HedgerowWith):
    """Hedgerow with one hedging policy and otherwise default settings."""

    hedging = ""
    admin_port = 0

    def config(self) -> dict[str, object]:
        settings = super().config()
        if not self.policy:
            del settings["routing"]
        self.admin_port = free_port()
        return {
            **settings,
            "admin": f"127.0.0.1:{self.admin_port}",
            "hedging": {"policy": self.hedging},
        }


def hedgerow(name: str, hedging: str, policy: str = "") -> type[HedgerowHedging]:
    """Return the class that starts Hedgerow. An empty `policy` means the default routing policy."""
    settings = f"as shipped, hedging {hedging}" + (f", routing {policy}" if policy else "")
    return type(
        "Hedgerow",
        (HedgerowHedging,),
        {"name": name, "policy": policy, "hedging": hedging, "settings": settings},
    )


class EnvoyHedging(Ready, Envoy):
    after_s = 0.0

    def routes(self) -> list[dict[str, object]]:
        """Envoy's routes: urgent requests have their own route, and only that route resends
        requests.
        """
        [plain] = super().routes()
        urgent = {
            "match": {
                "prefix": "/",
                "headers": [{"name": "x-priority", "string_match": {"exact": URGENT}}],
            },
            "route": {
                "cluster": "fleet",
                "timeout": "0s",
                "hedge_policy": {"hedge_on_per_try_timeout": True},
                "retry_policy": {
                    "retry_on": "5xx,reset,connect-failure",
                    "num_retries": 1,
                    "per_try_timeout": f"{self.after_s:.3f}s",
                    "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.001s"},
                    "retry_host_predicate": [
                        {
                            "name": "envoy.retry_host_predicates.previous_hosts",
                            "typed_config": {
                                "@type": "type.googleapis.com/envoy.extensions.retry.host."
                                "previous_hosts.v3.PreviousHostsPredicate"
                            },
                        }
                    ],
                    "host_selection_retry_max_attempts": 10,
                },
            },
        }
        return [urgent, plain]


def envoy(after_s: float) -> type[EnvoyHedging]:
    return type(
        "EnvoyAfter",
        (EnvoyHedging,),
        {
            "name": "envoy hedging",
            "after_s": after_s,
            "settings": "LEAST_REQUEST; x-priority: high has hedge_on_per_try_timeout with "
            f"per_try_timeout {after_s * 1e3:.0f} ms, num_retries 1, previous_hosts",
        },
    )


class HaproxyRetrying(Ready, Haproxy):
    after_s = 0.0

    def more_global(self) -> str:
        return f"  tune.bufsize {BUFFER_BYTES}\n"

    def more_backend(self) -> str:
        after_ms = round(self.after_s * 1e3)
        return (
            "  retries 1\n  option redispatch 1\n"
            "  retry-on conn-failure empty-response response-timeout\n"
            f"  http-request set-timeout server {after_ms}ms "
            f"if {{ req.hdr(x-priority) -m str {URGENT} }}\n"
        )


def haproxy(after_s: float) -> type[HaproxyRetrying]:
    return type(
        "HaproxyAfter",
        (HaproxyRetrying,),
        {
            "name": "haproxy retrying",
            "after_s": after_s,
            "settings": f"leastconn; x-priority: high has timeout server {after_s * 1e3:.0f} ms "
            "with retry-on response-timeout, retries 1, option redispatch 1",
        },
    )


# The compared routers. Each value is a function that gets the retry timeout in seconds, which only
# Envoy and HAProxy use, and returns the router's class.
KINDS: dict[str, Callable[[float], type[Ready]]] = {
    "adaptive": lambda after_s: hedgerow("hedgerow hedging", "adaptive"),
    "off": lambda after_s: hedgerow("hedgerow", "off"),
    "p2c": lambda after_s: hedgerow("hedgerow p2c", "off", "p2c"),
    "envoy": envoy,
    "haproxy": haproxy,
}
