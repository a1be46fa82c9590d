"""A hostile name server: forged, broken and incomplete answers, and answers that never come."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random

import dns.flags
import dns.message
import dns.rdatatype
import dns.rrset
import pytest

from router.config.model import Discovery, DnsName
from router.fleet.discovery.dns_client import DnsClient, LookupFailed
from router.fleet.discovery.dns_source import DnsSource
from router.fleet.discovery.records import Question
from tests.harness.ports import free_port
from tests.harness.running import scenario

QUESTION = Question("vllm.test", "A")

Answers = Callable[[dns.message.Message], Sequence[bytes]]


class Server:
    """Sends the given datagrams for each query; the TCP port sends the given bytes and closes."""

    def __init__(self, over_udp: Answers, over_tcp: Answers) -> None:
        self.over_udp = over_udp
        self.over_tcp = over_tcp
        self.asked = 0
        self.asked_over_tcp = 0
        self.port = 0

    def answer_datagram(self, sock: socket.socket) -> None:
        data, addr = sock.recvfrom(4096)
        self.asked += 1
        for answer in self.over_udp(dns.message.from_wire(data)):
            sock.sendto(answer, addr)

    async def serve_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked_over_tcp += 1
        try:
            size = int.from_bytes(await reader.readexactly(2), "big")
            query = dns.message.from_wire(await reader.readexactly(size))
            writer.writelines(self.over_tcp(query))
        except asyncio.IncompleteReadError:
            pass  # the client has left
        finally:
            writer.close()


def silent(query: dns.message.Message) -> list[bytes]:
    return []


@asynccontextmanager
async def serving(over_udp: Answers, over_tcp: Answers = silent) -> AsyncIterator[Server]:
    loop = asyncio.get_running_loop()
    server = Server(over_udp, over_tcp)
    tcp = await asyncio.start_server(server.serve_tcp, "127.0.0.1", free_port())
    port = tcp.sockets[0].getsockname()[1]
    server.port = port
    with socket.socket(type=socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", port))
        loop.add_reader(udp, server.answer_datagram, udp)
        try:
            yield server
        finally:
            loop.remove_reader(udp)
            tcp.close()
            await tcp.wait_closed()
            await asyncio.sleep(0)


def client(server: Server, timeout_s: float = 0.5) -> DnsClient:
    return DnsClient(rules(server, timeout_s))


def rules(server: Server, timeout_s: float) -> Discovery:
    return Discovery(nameservers=(f"127.0.0.1:{server.port}",), timeout_s=timeout_s)


def answer(query: dns.message.Message, *addresses: str, name: str = "vllm.test.") -> bytes:
    made = dns.message.make_response(query)
    if addresses:
        made.answer.append(dns.rrset.from_text(name, 7, "IN", "A", *addresses))
    return made.to_wire(max_size=65535)


def truncated(query: dns.message.Message) -> list[bytes]:
    made = dns.message.make_response(query)
    made.flags |= dns.flags.TC
    return [made.to_wire()]


def whole(query: dns.message.Message) -> list[bytes]:
    wire = answer(query, "10.0.0.1")
    return [len(wire).to_bytes(2, "big"), wire]


@scenario
async def test_forged_and_broken_datagrams_are_ignored() -> None:
    def forged(query: dns.message.Message) -> list[bytes]:
        other = dns.message.make_query("vllm.test.", "A", id=(query.id + 1) % 65536)
        wrong_name = dns.message.make_query("other.test.", "A", id=query.id)
        return [
            b"",
            b"\0" * 5,
            b"\xff" * 600,
            answer(other, "10.6.6.6"),
            *truncated(other),
            answer(wrong_name, "10.6.6.6"),
            query.to_wire(),
            answer(query, "10.0.0.1"),
        ]

    async with serving(forged) as server:
        reply = await client(server).ask(QUESTION)
        assert (reply.addresses, reply.ttl_s) == (("10.0.0.1",), 7.0)
        assert (server.asked, server.asked_over_tcp) == (1, 0)


@scenario
async def test_an_address_of_another_name_is_not_used() -> None:
    def poisoned(query: dns.message.Message) -> list[bytes]:
        return [answer(query, "10.6.6.6", name="other.test.")]

    async with serving(poisoned) as server:
        assert (await client(server).ask(QUESTION)).addresses == ()


@scenario
async def test_a_truncated_answer_is_asked_for_over_tcp() -> None:
    async with serving(truncated, whole) as server:
        assert (await client(server, timeout_s=5.0).ask(QUESTION)).addresses == ("10.0.0.1",)
        assert server.asked_over_tcp == 1


@pytest.mark.parametrize(
    "cut",
    [
        lambda query: [],
        lambda query: [b"\0"],
        lambda query: [b"\xff\xff", answer(query, "10.0.0.1")],
        lambda query: [b"\0\x05", b"\0" * 5],
        lambda query: [part[:20] if len(part) > 2 else b"\0\x14" for part in whole(query)],
        lambda query: whole(dns.message.make_query("other.test.", "A", id=query.id)),
    ],
)
@scenario
async def test_a_bad_answer_over_tcp_is_a_failure(cut: Answers) -> None:
    async with serving(truncated, cut) as server:
        with pytest.raises(LookupFailed):
            await client(server).ask(QUESTION)


@scenario
async def test_a_query_that_is_lost_is_sent_again() -> None:
    lost: list[object] = []

    def once(query: dns.message.Message) -> list[bytes]:
        lost.append(query)
        return [answer(query, "10.0.0.1")] if len(lost) > 1 else []

    async with serving(once) as server:
        assert (await client(server, timeout_s=1.0).ask(QUESTION)).addresses == ("10.0.0.1",)


@scenario
async def test_a_lookup_can_be_cancelled_at_any_time() -> None:
    """`scenario` checks that no socket and no task remains."""
    async with serving(truncated, silent) as server:
        asking = client(server, timeout_s=5.0)
        for turns in range(12):
            task = asyncio.ensure_future(asking.ask(QUESTION))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises((asyncio.CancelledError, LookupFailed)):
                await task


@scenario
async def test_a_dead_name_server_is_not_asked_for_every_target() -> None:
    """A look at many targets must not wait for a timeout of each."""

    def only_services(query: dns.message.Message) -> list[bytes]:
        return truncated(query) if query.question[0].rdtype == dns.rdatatype.SRV else []

    def over_tcp(query: dns.message.Message) -> list[bytes]:
        made = dns.message.make_response(query)
        texts = [f"0 0 8000 t{n}.test." for n in range(200)]
        made.answer.append(dns.rrset.from_text("vllm.test.", 7, "IN", "SRV", *texts))
        wire = made.to_wire(max_size=65535)
        return [len(wire).to_bytes(2, "big"), wire]

    async with serving(only_services, over_tcp) as server:
        name = DnsName(url="http://vllm.test", records="srv")
        source = DnsSource(name, rules(server, 2.5), Random(1))
        look = await source.look()
        assert look.found is None and look.problem and not look.is_complete
        assert 16 < server.asked < 100


@scenario
async def test_nothing_listens() -> None:
    asking = DnsClient(Discovery(nameservers=(f"127.0.0.1:{free_port()}",), timeout_s=5.0))
    with pytest.raises(LookupFailed, match="refused"):
        await asking.ask(QUESTION)
