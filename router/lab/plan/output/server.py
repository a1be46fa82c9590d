"""Serves the gauges of the newest plan over HTTP, for Prometheus or KEDA's metrics-api scaler.

Before the first plan, /metrics has no series. Must never: make a plan, or wait for one.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class GaugeServer:
    """The HTTP server of the gauges. Set `plan` to publish a plan.

    The constructor begins to listen, and raises OSError if it cannot.
    """

    def __init__(self, host: str, port: int) -> None:
        self.plan: CollectorRegistry | None = None
        registry = CollectorRegistry()
        registry.register(_Newest(self))
        self._server: Any
        self._thread: Thread
        self._server, self._thread = start_http_server(port, host, registry)

    @property
    def port(self) -> int:
        port: int = self._server.server_port
        return port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Newest(Collector):
    def __init__(self, server: GaugeServer) -> None:
        self._server = server

    def collect(self) -> Iterator[Metric]:
        plan = self._server.plan
        if plan is not None:
            yield from plan.collect()
