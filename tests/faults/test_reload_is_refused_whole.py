"""A reload that fails at one place changes nothing, not even what was read before that place."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from router.config.model import (
    AccessLog,
    Hedging,
    Keys,
    Limits,
    Queue,
    Routing,
    Tls,
    Upstream,
)
from router.core.errors import ConfigError
from tests.core.under import CERT, DATA, KEY, Under, replica_at, serving
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.running import scenario

ONE = Tls(cert=CERT, key=KEY)
OTHER = Tls(cert=str(DATA / "other.pem"), key=str(DATA / "other.key"))
NOWHERE = "/no/such/folder/file"

# Each is the one thing that is wrong with an otherwise good configuration.
BROKEN: dict[str, dict[str, Any]] = {
    "access_log": {"access_log": AccessLog(path=NOWHERE)},
    "routing": {"routing": Routing(policy="none")},
    "routing options": {"routing": Routing(policy="p2c", options={"none": 1})},
    "hedging": {"hedging": Hedging(policy="none")},
    "queue": {"queue": Queue(policy="none")},
    "keys": {"keys": Keys(file=NOWHERE)},
    "upstream": {"upstream": Upstream(token_file=NOWHERE)},
    "certificate": {"tls": Tls(cert=str(DATA / "other.pem"), key=KEY)},
    "fixed": {"listen": "127.0.0.1:1"},
}


async def served(under: Under) -> bytes:
    """The certificate that a new connection is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", under.app.port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return bytes(shown)


async def ask(under: Under, *fields: str) -> int:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", under.app.port, ssl=context)
    writer.write(chat("Connection: close", *fields))
    line = await reader.readline()
    writer.transport.abort()
    return int(line.split()[1])


def in_force(under: Under) -> list[Any]:
    parts = under.app.parts
    return [
        under.app.config,
        under.app.metrics.config_hash,
        parts.config,
        parts.policies,
        parts.upstream,
        parts.log,
        parts.front.limits,
        parts.dispatcher.config,
        parts.dispatcher.tenants.requires_keys,
        None if parts.dispatcher.queue is None else parts.dispatcher.queue.pools.queues[0].config,
        sorted(parts.fleet.replicas),
    ]


@pytest.mark.parametrize("name", [*BROKEN, ""])
@scenario
async def test_one_thing_is_wrong(name: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f'{{"name": "a", "hash": "sha256:{"0" * 64}"}}\n')
    async with serving(json_ok, tls=ONE) as under:
        before, certificate = in_force(under), await served(under)
        good: dict[str, Any] = {
            "tls": OTHER,
            "routing": Routing(policy="random"),
            "limits": Limits(connections=1),
            "keys": Keys(file=str(keys), required=True),
            "access_log": AccessLog(path=str(tmp_path / "new.log")),
            "queue": Queue(policy="fifo"),
            "replicas": (replica_at("http://127.0.0.1:9"),),
        }
        under.change(**{**good, **BROKEN.get(name, {})})
        if not name:  # all the rest is good
            await under.app.reload()
            assert in_force(under)[0] is under.next
            return
        with pytest.raises(ConfigError):
            await under.app.reload()
        assert await served(under) == certificate
        assert in_force(under) == before
        assert await ask(under) == 200


@scenario
async def test_nothing_is_wrong() -> None:
    """The certificate changes for new connections, and those that are open stay."""
    async with serving(json_ok, tls=ONE) as under:
        before = await served(under)
        under.change(tls=OTHER)
        await under.app.reload()
        after = await served(under)
        assert after != before
        assert await ask(under) == 200
        under.change(tls=ONE)
        await under.app.reload()
        assert await served(under) == before
