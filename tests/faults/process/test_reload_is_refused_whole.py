"""A reload that fails at one place changes nothing, not even earlier parts."""

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from policies.hedging.contract import HEDGING, HedgingPolicy
from policies.queueing.contract import QUEUEING, OrderPolicy, TicketQueue, make_order
from policies.registry import PolicyConfigError
from router.app.parts import Parts
from router.config.model import (
    AccessLog,
    Hedging,
    Keys,
    Limits,
    Queue,
    Replica,
    Routing,
    Tls,
    Upstream,
)
from router.core.errors import ConfigError
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.replica import eventually
from tests.harness.running import Router, routed, running, scenario
from tests.places import CERT, CERTIFICATES, KEY

ONE = Tls(cert=CERT, key=KEY)
OTHER = Tls(cert=str(CERTIFICATES / "other.pem"), key=str(CERTIFICATES / "other.key"))
NOWHERE = "/no/such/folder/file"

# Each entry is the only error of an otherwise valid configuration.
BROKEN: dict[str, dict[str, Any]] = {
    "access_log": {"access_log": AccessLog(path=NOWHERE)},
    "routing": {"routing": Routing(policy="none")},
    "routing options": {"routing": Routing(policy="p2c", options={"none": 1})},
    "hedging": {"hedging": Hedging(policy="none")},
    "queue": {"queue": Queue(policy="none")},
    "keys": {"keys": Keys(file=NOWHERE)},
    "upstream": {"upstream": Upstream(token_file=NOWHERE)},
    "certificate": {"tls": Tls(cert=str(CERTIFICATES / "other.pem"), key=KEY)},
    "fixed": {"listen": "127.0.0.1:1"},
}


async def served(router: Router) -> bytes:
    """The certificate that a new connection gets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", router.app.port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return bytes(shown)


async def ask(router: Router, *fields: str) -> int:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", router.app.port, ssl=context)
    writer.write(chat("Connection: close", *fields))
    line = await reader.readline()
    writer.transport.abort()
    return int(line.split()[1])


def in_force(router: Router) -> list[Any]:
    parts = router.app.parts
    return [
        router.app.config,
        router.app.metrics.reloads.config_hash,
        parts.config,
        parts.context.chooser.policies,
        parts.upstream,
        parts.log,
        parts.front.limits,
        parts.context.rules,
        parts.context.hedger._rules,
        parts.fleet.rules,
        parts.dispatcher.tenants.requires_keys,
        None if parts.queue is None else parts.queue.pools.queues[0].config,
        sorted((r.id, r.weight, r.config.url, id(r)) for r in parts.fleet.replicas.values()),
        parts.context.chooser.policies.default,
    ]


@pytest.mark.parametrize("name", [*BROKEN, ""])
@scenario
async def test_one_thing_is_wrong(name: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f'{{"name": "a", "hash": "sha256:{"0" * 64}"}}\n')
    async with running(json_ok, tls=ONE) as router:
        before, certificate = in_force(router), await served(router)
        good: dict[str, Any] = {
            "tls": OTHER,
            "routing": Routing(policy="random"),
            "limits": Limits(connections=1),
            "keys": Keys(file=str(keys), required=True),
            "access_log": AccessLog(path=str(tmp_path / "new.log")),
            "queue": Queue(policy="fifo"),
            "replicas": (Replica(url="http://127.0.0.1:9", id="other"),),
        }
        router.change(**{**good, **BROKEN.get(name, {})})
        if not name:  # without a broken part, the configuration is valid
            await router.app.reload()
            assert in_force(router)[0] is router.next
            return
        with pytest.raises(ConfigError):
            await router.app.reload()
        assert await served(router) == certificate
        assert in_force(router) == before
        assert await ask(router) == 200


@routed(json_ok, tls=ONE)
async def test_nothing_is_wrong(router: Router) -> None:
    """New connections get the new certificate; open connections stay."""
    before = await served(router)
    router.change(tls=OTHER)
    await router.app.reload()
    after = await served(router)
    assert after != before
    assert await ask(router) == 200
    router.change(tls=ONE)
    await router.app.reload()
    assert await served(router) == before


class Left:
    """Number of objects that can still be created; then each attempt fails."""

    count = 0

    @classmethod
    def use(cls) -> None:
        cls.count -= 1
        if cls.count < 0:
            raise PolicyConfigError("it cannot be made this time")


@dataclass(slots=True)
class Hedges(HedgingPolicy):
    """A third-party policy that can be created a limited number of times."""

    def __post_init__(self) -> None:
        Left.use()


@dataclass(slots=True)
class Orders(OrderPolicy):
    """An order policy for queues that can be created a limited number of times."""

    def __post_init__(self) -> None:
        Left.use()

    def line(self, urgency: int) -> TicketQueue:
        return make_order("fifo").line(urgency)


@pytest.mark.parametrize("most", range(9))
@scenario
async def test_a_part_cannot_be_made(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For every part, including the second half of a reload: all or nothing takes effect."""
    for registry, made in ((HEDGING, Hedges), (QUEUEING, Orders)):
        registry.names()
        monkeypatch.setattr(registry, "classes", {**registry.classes, "fragile": made})
    make_replica = Parts.make_replica

    def fails(*args: Any) -> Any:
        Left.use()
        return make_replica(*args)

    async with running(json_ok, json_ok, tls=ONE) as router:
        old = router.app.parts.config.replicas
        # Two models that share no replica, so there are two queues.
        parted = [replace(old[0], models=("m",)), replace(old[1], models=("n",))]
        router.change(replicas=tuple(parted))
        await router.app.reload()
        queue = router.app.parts.queue
        assert queue is not None
        pools = queue.pools
        await eventually(lambda: len(pools.queues) == 2, "a queue for each model")
        monkeypatch.setattr(Parts, "make_replica", fails)
        before, certificate = in_force(router), await served(router)
        router.change(
            tls=OTHER,
            hedging=Hedging(policy="fragile"),
            queue=Queue(policy="fragile"),
            limits=Limits(connections=9),
            replicas=(
                replace(parted[0], weight=2.0),
                *(
                    Replica(url=f"http://127.0.0.1:{port}", id=f"at {port}", models=("m",))
                    for port in (8, 9)
                ),
            ),
        )
        Left.count = most
        try:
            await router.app.reload()
        except PolicyConfigError:
            assert most < NEEDED
        except ConfigError:
            assert most < NEEDED
        else:
            assert most >= NEEDED
        if most < NEEDED:
            assert in_force(router) == before
            assert await served(router) == certificate
        else:
            assert router.app.parts.config is router.next
            assert await served(router) != certificate
        assert await ask(router) == 200


NEEDED = 5  # a hedging policy, an order for each of two queues, and two replicas
