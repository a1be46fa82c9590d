"""A replica whose certificate is refused gets no request, and no client gets an error."""

import pytest

from router.config.model import Pool, Replica, Upstream
from router.core.errors import Reason
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.over_tls import NAME, OTHER_CERT, TlsReplica
from tests.harness.queueing import of_each
from tests.harness.replica import HostileReplica, ReplicaConnection
from tests.harness.running import Router, assert_error, running, scenario
from tests.places import CERT, CERTIFICATES

DISTRUSTING = pytest.mark.parametrize(
    "upstream",
    [
        Upstream(ca_file=OTHER_CERT, server_name=NAME),
        Upstream(ca_file=CERT, server_name="two.test"),
    ],
    ids=["unknown authority", "another name"],
)


def believe(router: Router) -> None:
    """Forget the results of the first probes, as if the certificate had changed after them."""
    fleet = router.app.parts.fleet
    for replica in fleet.replicas.values():
        replica.health.up = True
    fleet.rebuild()


def refused(router: Router) -> int:
    """Number of handshakes that the router aborted."""
    assert isinstance(router.replica, TlsReplica)
    return router.replica.refused


@DISTRUSTING
@scenario
async def test_alone_it_is_a_503(upstream: Upstream) -> None:
    async with running(TlsReplica(json_ok), upstream=upstream) as router:
        assert_error(await router.ask(chat()), Reason.NO_REPLICA)
        assert refused(router) >= 1
        assert router.replica.requests == []


@DISTRUSTING
@scenario
async def test_before_the_probe_knows(upstream: Upstream) -> None:
    classes = of_each(absent_s=0.0)
    async with running(TlsReplica(json_ok), upstream=upstream, classes=classes) as router:
        believe(router)
        before = refused(router)
        answer = await router.ask(chat())
        assert_error(answer, Reason.CONNECT_FAILED, 503)
        assert answer.header("retry-after")
        assert router.replica.requests == []
        assert refused(router) > before
        assert await router.reason() == "connect_failed"


@DISTRUSTING
@scenario
async def test_another_replica_serves(upstream: Upstream) -> None:
    async with running(
        TlsReplica(json_ok),
        json_ok,
        upstream=upstream,
        replica={"models": ("m",)},  # the replica cannot list its models
        policy="round_robin",
    ) as router:
        believe(router)
        for _ in range(4):
            assert (await router.ask(chat())).status == 200
        lines = await router.log(4)
        assert {line["reason"] for line in lines} == {"ok"}
        assert max(line["attempts"] for line in lines) == 2
        assert router.replica.requests == []
        assert len(router.replicas[1].requests) == 4


@scenario
async def test_a_plain_replica_at_an_https_url() -> None:
    """The replica answers the handshake with HTTP, which is treated like a wrong certificate."""
    async with HostileReplica(garbled) as plain:
        url = plain.url.replace("http:", "https:")
        trusting = Upstream(ca_file=CERT, server_name=NAME)
        async with running(
            url, TlsReplica(json_ok), upstream=trusting, policy="round_robin"
        ) as router:
            believe(router)
            for _ in range(4):
                assert (await router.ask(chat())).status == 200
            assert {line["reason"] for line in await router.log(4)} == {"ok"}


HTTP_400 = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
OLD_TLS = bytes.fromhex("15030100020246")  # the alert protocol_version
NO_NAME = bytes.fromhex("15030300020270")  # the alert unrecognized_name
HANDSHAKE = bytes.fromhex("15030300020228")  # the alert handshake_failure
HOST = "127.0.0.1"

FAILURES = {
    "unknown authority": (b"", {"ca_file": OTHER_CERT, "server_name": NAME}, NAME, "ca_file"),
    "authority of the system": (b"", {"server_name": NAME}, NAME, "ca_file"),
    "another name": (b"", {"ca_file": CERT, "server_name": "two.test"}, "two.test", "server_name"),
    "plain HTTP": (HTTP_400, {"ca_file": CERT}, HOST, "http://"),
    "an old version": (OLD_TLS, {"ca_file": CERT}, HOST, "TLS 1.2"),
    "an unknown name": (NO_NAME, {"ca_file": CERT}, HOST, "server_name"),
    "a refusal": (HANDSHAKE, {"ca_file": CERT}, HOST, "client certificate"),
}


@pytest.mark.parametrize("pool", ["", "p"])
@pytest.mark.parametrize("case", FAILURES)
@scenario
async def test_the_failure_says_reason_host_and_setting(case: str, pool: str) -> None:
    sent, settings, host, hint = FAILURES[case]

    async def refuse(connection: ReplicaConnection) -> None:
        await connection.fill()
        await connection.send(sent)
        connection.close()

    engine = HostileReplica(refuse, asked_apart=False) if sent else TlsReplica(json_ok)
    engine.start()
    config = {"pools": {"p": Pool(**settings)}} if pool else {"upstream": Upstream(**settings)}
    url = engine.url.replace("http:", "https:")
    replicas = (Replica(url=url, id="r0", pool=pool),)
    async with running(engine, replicas=replicas, **config) as router:
        (told,) = router.app.replicas()
        why = told["why"]
        assert f"TLS with {host} failed: " in why
        assert "not permitted" not in why
        assert hint in why
        where = "pools.p." if pool else "upstream."
        assert hint not in ("ca_file", "server_name") or where + hint in why


TIMES = {"expired": "certificate has expired", "future": "certificate is not yet valid"}


@pytest.mark.parametrize("name", TIMES)
@scenario
async def test_a_certificate_out_of_its_time_is_named(name: str) -> None:
    engine = TlsReplica(json_ok)
    engine.cert = str(CERTIFICATES / f"{name}.pem")
    engine.start()
    upstream = Upstream(ca_file=engine.cert, server_name=NAME)
    async with running(engine, upstream=upstream) as router:
        assert_error(await router.ask(chat()), Reason.NO_REPLICA)
        (told,) = router.app.replicas()
        hint = "renew the certificate, or correct the clock of this host"
        assert f"TLS with {NAME} failed: {TIMES[name]}; {hint}" in told["why"]
        assert engine.requests == []


async def garbled(connection: ReplicaConnection) -> None:
    await connection.fill()
    await connection.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    connection.close()
