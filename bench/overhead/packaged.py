"""Peers from PyPI, each in its own virtual environment (created by `install`).

Each has one worker, two replicas and its default logging; `settings` lists changed settings.
"""

from __future__ import annotations

import json
from typing import ClassVar

from bench.overhead import install
from router.lab.overhead import shapes
from router.lab.overhead.processes import free_port
from router.lab.overhead.routers import Peer, PeerError


class Packaged(Peer):
    """A router from PyPI in its own virtual environment (`--install-peers` creates it)."""

    package: ClassVar[install.Package]

    def version(self) -> str:
        if (found := install.found(self.package)) is None:
            raise PeerError("not installed; `hedgerow bench overhead --install-peers` installs it")
        return found.version

    def program(self, name: str) -> str:
        found = install.found(self.package)
        assert found is not None
        return str(found.folder / "bin" / name)


class Envoy(Packaged):
    name = "envoy"
    settings = "--concurrency 1, access log to a file, LEAST_REQUEST, no route timeout"
    package = install.ENVOY

    def routes(self) -> list[dict[str, object]]:
        """Envoy's routes for all requests. The first route that matches applies."""
        return [{"match": {"prefix": "/"}, "route": {"cluster": "fleet", "timeout": "0s"}}]

    def command(self) -> list[str]:
        def address(port: int) -> dict[str, object]:
            return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

        types = "type.googleapis.com/envoy.extensions"
        manager = {
            "@type": f"{types}.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "ingress",
            "stream_idle_timeout": "0s",
            "access_log": [
                {
                    "name": "file",
                    "typed_config": {
                        "@type": f"{types}.access_loggers.file.v3.FileAccessLog",
                        "path": str(self.site.folder / "access.log"),
                    },
                }
            ],
            "http_filters": [
                {
                    "name": "router",
                    "typed_config": {"@type": f"{types}.filters.http.router.v3.Router"},
                }
            ],
            "route_config": {
                "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": self.routes()}]
            },
        }
        # The default limit of Envoy's circuit breaker, 1,024, would refuse idle streams.
        most = 100_000
        kinds = ("max_connections", "max_pending_requests", "max_requests", "max_retries")
        limits = dict.fromkeys(kinds, most)
        cluster = {
            "name": "fleet",
            "type": "STATIC",
            "lb_policy": "LEAST_REQUEST",
            "connect_timeout": "5s",
            "circuit_breakers": {"thresholds": [limits]},
            "load_assignment": {
                "cluster_name": "fleet",
                "endpoints": [
                    {
                        "lb_endpoints": [
                            {"endpoint": {"address": address(port)}} for port in self.site.upstreams
                        ]
                    }
                ],
            },
        }
        listener = {
            "name": "data",
            "address": address(self.port),
            "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
        }
        config = self.site.folder / "envoy.json"
        config.write_text(
            json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}})
        )
        return [
            *(self.program("envoy"), "-c", str(config), "--concurrency", "1"),
            *("--disable-hot-restart", "--log-level", "warning"),
        ]


class VllmRouter(Packaged):
    name = "vllm-router"
    settings = "--policy round_robin, its log as shipped"
    package = install.VLLM_ROUTER
    ready_s = 40.0

    def command(self) -> list[str]:
        return [
            *(self.program("vllm-router"), "--host", "127.0.0.1", "--port", str(self.port)),
            *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())),
            *("--policy", "round_robin", "--worker-urls", *self.urls()),
        ]


class SglangRouter(Packaged):
    name = "sglang-router"
    settings = "--policy round_robin, its log as shipped"
    package = install.SGLANG_ROUTER
    ready_s = 40.0

    def command(self) -> list[str]:
        return [
            *(self.program("sglang-router"), "launch"),
            *("--host", "127.0.0.1", "--port", str(self.port)),
            *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())),
            *("--policy", "round_robin", "--worker-urls", *self.urls()),
        ]


class Litellm(Packaged):
    name = "litellm"
    settings = (
        "proxy with one worker, two deployments of one model, simple-shuffle; paced tokens with 16 "
        "streams (256 at 50/s are more than it can relay, and most then never begin)"
    )
    package = install.LITELLM
    ready_s = 90.0
    patience = 3.0
    most_paced = 16

    def env(self) -> dict[str, str]:
        # LiteLLM downloads its price list at every start, unless told to use the bundled one.
        return {
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_MODE": "PRODUCTION",
            # The default limits, 1,000 in total and 500 per host, would keep half of the idle
            # streams waiting. With 0, aiohttp's own limit of 100 applies instead.
            "AIOHTTP_CONNECTOR_LIMIT": "100000",
            "AIOHTTP_CONNECTOR_LIMIT_PER_HOST": "100000",
            # Otherwise LiteLLM requires a strong key, and checking a key would take CPU time.
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        }

    def command(self) -> list[str]:
        config = self.site.folder / "litellm.yaml"
        models = [
            {
                "model_name": shapes.MODEL,
                "litellm_params": {
                    "model": f"openai/{shapes.MODEL}",
                    "api_base": f"{url}/v1",
                    "api_key": "sk-bench",
                },
            }
            for url in self.urls()
        ]
        config.write_text(json.dumps({"model_list": models}))
        return [
            *(self.program("litellm"), "--config", str(config), "--host", "127.0.0.1"),
            *("--port", str(self.port), "--num_workers", "1", "--telemetry", "False"),
        ]
