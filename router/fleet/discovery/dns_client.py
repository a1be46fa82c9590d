"""Asks DNS name servers, with dnspython. Import only if a DNS name is configured: an extra.

A truncated answer over UDP is asked for again over TCP. dnspython needs about 30 us to parse one
record, so the answers over TCP, which may have thousands, are parsed in a thread.

Must never: use a cache of its own, because `records.py` keeps the records.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import dns.asyncresolver
import dns.exception
import dns.message
import dns.nameserver
import dns.query
import dns.rdatatype
import dns.resolver

from router.config.address import split_name_server
from router.config.model import Discovery
from router.fleet.discovery.records import SRV, Question, Reply, Service

_UDP_BYTES = 1232  # The largest answer over UDP; DNS flag day 2020: no fragments.
_BYTES_MAX = 65535  # The largest message.
_TRY_S = 2.0  # Seconds until an unanswered query is sent again, or to the next name server.


class LookupFailed(Exception):
    """No name server gave a valid answer. The text of the error states the reason."""


class DnsClient:
    """A stub resolver. Creating one reads /etc/resolv.conf, unless name servers are configured."""

    def __init__(self, rules: Discovery) -> None:
        """Raises LookupFailed if no name server is known."""
        has_servers = bool(rules.nameservers)
        try:
            resolver = dns.asyncresolver.Resolver(configure=not has_servers)
        except dns.exception.DNSException as err:
            raise LookupFailed(str(err)) from None
        servers = [split_name_server(text) for text in rules.nameservers] or [
            (str(server), resolver.port) for server in resolver.nameservers
        ]
        resolver.nameservers = [_Server(address, port) for address, port in servers]
        # A name with a dot is looked up as it is first, then with the search domains. In Kubernetes
        # (`ndots:5`) it would be the other way round, and a failure of any domain would count.
        resolver.ndots = 1
        resolver.use_edns(0, 0, _UDP_BYTES)
        resolver.lifetime = rules.timeout_s
        resolver.timeout = min(_TRY_S, rules.timeout_s / 2)
        self._resolver = resolver
        self._retry_max_s = rules.retry_max_s
        self._searches = not has_servers  # Whether the search domains of the system are used.

    async def ask(self, question: Question) -> Reply:
        """Look up records. A name or a type that does not exist is a valid, empty reply.

        Raises LookupFailed.
        """
        try:
            answer = await self._resolver.resolve(
                question.name, question.kind, raise_on_no_answer=False, search=self._searches
            )
        except dns.resolver.NXDOMAIN as err:
            responses: dict[Any, Any] = err.responses()  # type: ignore[no-untyped-call]
            return self._negative([*responses.values()])
        except (dns.exception.DNSException, EOFError, OSError) as err:
            raise LookupFailed(str(err) or type(err).__name__) from None
        if answer.rrset is None:
            if _is_referral(answer.response):
                raise LookupFailed(f"{question.name}: the name server refers to other name servers")
            return self._negative([answer.response])
        ttl_s = float(answer.chaining_result.minimum_ttl)
        if question.kind == SRV:
            return Reply(ttl_s, services=tuple(_service(record) for record in answer.rrset))
        return Reply(ttl_s, tuple(str(record.address) for record in answer.rrset))

    def _negative(self, responses: Sequence[dns.message.QueryMessage]) -> Reply:
        """Return the reply for a name without such records.

        The SOA record in the answer states how long it is valid (RFC 2308).
        """
        ttls = [response.resolve_chaining().minimum_ttl for response in responses]
        return Reply(min([self._retry_max_s, *ttls]))


class _Server(dns.nameserver.Do53Nameserver):
    """A name server that is asked over plain sockets, for two reasons.

    With datagram endpoints of uvloop 0.23, an event loop did not close in some runs of the tests.
    And long answers have to be parsed in a thread.
    """

    async def async_query(
        self,
        request: dns.message.QueryMessage,
        timeout: float,
        source: str | None,
        source_port: int,
        max_size: bool,
        backend: object,
        one_rr_per_rrset: bool = False,
        ignore_trailing: bool = False,
    ) -> dns.message.Message:
        """Ask over TCP if `max_size`, else over UDP. Raises OSError and DNSException."""
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        kind = socket.SOCK_STREAM if max_size else socket.SOCK_DGRAM
        with socket.socket(family, kind) as sock:
            sock.setblocking(False)
            try:
                async with asyncio.timeout(timeout):
                    loop = asyncio.get_running_loop()
                    await loop.sock_connect(sock, (self.address, self.port))
                    return await (_over_tcp if max_size else _over_udp)(loop, sock, request)
            except TimeoutError:
                raise dns.exception.Timeout(timeout=timeout) from None  # type: ignore[no-untyped-call]


async def _over_udp(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, request: dns.message.QueryMessage
) -> dns.message.Message:
    """Raises dns.message.Truncated. Datagrams that do not answer the request are ignored."""
    await loop.sock_sendall(sock, request.to_wire())
    while True:
        wire = await loop.sock_recv(sock, _BYTES_MAX)
        try:
            response = dns.message.from_wire(wire, raise_on_truncation=True)
        except dns.message.Truncated as err:
            if request.is_response(err.message()):  # type: ignore[no-untyped-call]
                raise
        except dns.exception.DNSException:
            continue
        else:
            if request.is_response(response):
                return response


async def _over_tcp(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, request: dns.message.QueryMessage
) -> dns.message.Message:
    """Raises EOFError if the server closes the connection."""
    await loop.sock_sendall(sock, request.to_wire(prepend_length=True))
    size = int.from_bytes(await _exactly(loop, sock, 2), "big")
    wire = await _exactly(loop, sock, size)
    response = await asyncio.to_thread(dns.message.from_wire, wire)
    if not request.is_response(response):
        raise dns.query.BadResponse
    return response


async def _exactly(loop: asyncio.AbstractEventLoop, sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = await loop.sock_recv(sock, size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _is_referral(response: dns.message.Message) -> bool:
    """Whether an answer without records says nothing about the name (RFC 2308 section 2.2)."""
    kinds = {rrset.rdtype for rrset in response.authority}
    return dns.rdatatype.NS in kinds and dns.rdatatype.SOA not in kinds


def _service(record: Any) -> Service:
    target = record.target.to_text(omit_final_dot=True)
    return Service(record.priority, record.weight, record.port, "" if target == "." else target)
