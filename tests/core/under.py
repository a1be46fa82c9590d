"""An app under test with its replicas; checks at the end that it has released everything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from router.app import App
from router.config.model import (
    AccessLog,
    Config,
    Drain,
    Replica,
    Routing,
)
from tests.harness import clocks
from tests.harness.client import RawClient
from tests.harness.messages import chat, request
from tests.harness.reading import Response
from tests.harness.replica import Behaviour, HostileReplica
from tests.places import CERTIFICATES

DATA = CERTIFICATES
CERT, KEY = str(DATA / "one.pem"), str(DATA / "one.key")
NEVER_S = 3600.0
IDLE = ("probes", "polls", "parties", "replica_idle")  # used without any request


class Under:
    """An app under test: its replicas, and the configuration for its next reload."""

    def __init__(self, config: Config, replicas: list[HostileReplica]) -> None:
        self.replicas = replicas
        self.next = config
        self.app = App(config, self.read_again)
        self.clients: list[RawClient] = []
        self.read: Callable[[], Config] | None = None

    def read_again(self) -> Config:
        return self.next if self.read is None else self.read()

    def change(self, **fields: Any) -> None:
        """Change the configuration that the next reload reads."""
        self.next = msgspec.structs.replace(self.next, **fields)

    async def client(self) -> RawClient:
        """A new client connection; closed at the end."""
        client = await RawClient.connect(self.app.port)
        self.clients.append(client)
        return client

    async def ask(self, data: bytes | None = None, port: int | None = None) -> Response:
        """Send one request on its own connection."""
        client = await RawClient.connect(self.app.port if port is None else port)
        try:
            await client.send(chat() if data is None else data)
            return await client.recv_response()
        finally:
            client.close()

    async def admin(self, path: str, method: str = "GET") -> Response:
        return await self.ask(
            request(path, "Connection: close", method=method), self.app.admin_port
        )

    def busy(self) -> dict[str, int]:
        census = self.app.census()
        return {k: n for k, n in census.items() if n and k not in IDLE}


def replica_at(url: str, **fields: Any) -> Replica:
    return Replica(**{"url": url, "id": url.rpartition(":")[2], **fields})


def settings(*urls: str, **fields: Any) -> Config:
    return Config(
        **{
            "listen": "127.0.0.1:0",
            "admin": "127.0.0.1:0",
            "replicas": tuple(replica_at(url) for url in urls),
            "routing": Routing(policy="round_robin"),
            "health": clocks.health(),
            "polling": clocks.polling(),
            "access_log": AccessLog(path=""),
            "drain": Drain(lame_duck_s=0.0, grace_s=5.0),
            **fields,
            "classes": clocks.classes(fields.get("classes")),
        }
    )


@asynccontextmanager
async def serving(*behaviours: Behaviour | HostileReplica, **fields: Any) -> AsyncIterator[Under]:
    """An app in front of one replica per behaviour; at the end nothing of it may remain."""
    replicas = [
        behave if isinstance(behave, HostileReplica) else HostileReplica(behave)
        for behave in behaviours
    ]
    for replica in replicas:
        replica.start()
    under = Under(settings(*(r.url for r in replicas), **fields), replicas)
    await under.app.start()
    try:
        yield under
    finally:
        for client in under.clients:
            client.close()
        await under.app.stop()
        for replica in replicas:
            await replica.stop()
    left = {name: count for name, count in under.app.census().items() if count}
    assert not left
    assert [replica.failures for replica in replicas] == [[]] * len(replicas)
