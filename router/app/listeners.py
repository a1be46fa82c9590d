"""The listening sockets of a router: data port, admin port, probes.

A socket is bound here, or it was inherited: from systemd, or from the process that this process
replaces. All processes that have an inherited socket share its queue of connections. So a
connection that one process has not accepted is accepted by another one, and is never refused while
one of them has the socket.

Must never: accept a connection. The servers of `App` and `Admin` accept, on copies of the sockets.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from router.config.address import join_host_port, leads_to, split_addresses
from router.config.model import Config
from router.core.errors import ConfigError

DATA: Final = "listen"
ADMIN: Final = "admin"
PROBES: Final = "probes"
NAMES: Final = (DATA, ADMIN, PROBES)
# Where the address of a listener is set, for error messages.
_SET_WITH: Final = {
    DATA: "listen, or the flag --listen",
    ADMIN: "admin.listen, or the flag --admin",
    PROBES: "admin.probes_listen",
}
_SETTINGS: Final = {DATA: "listen", ADMIN: "admin.listen", PROBES: "admin.probes_listen"}
# Maximum number of connections that wait to be accepted; the kernel may have a lower limit.
BACKLOG: Final = 4096


@dataclass(frozen=True, slots=True)
class Listener:
    """One listening socket.

    `address`: the address of the configuration for which the socket was bound, as `host:port`. It
    is empty if systemd named the socket. Then the socket serves the listener `name`, whatever
    address is configured.
    """

    name: str
    address: str
    sock: socket.socket

    @property
    def fd(self) -> int:
        return self.sock.fileno()

    def is_for(self, name: str, address: str) -> bool:
        """Whether the socket was bound for the listener `name` at the address `address`."""
        return self.name == name and self.address == address


class Listeners:
    """The listening sockets of one process. Call `close` for each name, or `close_all`."""

    def __init__(self, inherited: Iterable[Listener] = ()) -> None:
        self._inherited = list(inherited)
        self._open: list[Listener] = []

    def open_all(self, config: Config) -> None:
        """Opens the sockets of a router. Raises OSError if an address is not available."""
        self.open(ADMIN, config.admin.listen)
        if config.admin.probes_listen is not None:
            self.open(PROBES, config.admin.probes_listen)
        self.open(DATA, config.listen)

    def open(self, name: str, text: str) -> None:
        """Takes the inherited sockets for a listener, or binds new ones.

        `text`: the addresses in the configuration. Raises OSError if one is not available.
        """
        named = [one for one in self._inherited if one.name == name and not one.address]
        for one in named:  # systemd decides about the addresses
            self._inherited.remove(one)
            self._open.append(one)
        for host, port in [] if named else split_addresses(text):
            self._open_at(name, host, port)

    def _open_at(self, name: str, host: str, port: int) -> None:
        address = join_host_port(host, port)
        found = [one for one in self._inherited if one.is_for(name, address)]
        if not found and port:
            # A new configuration may have given the address to another listener.
            found = [one for one in self._inherited if one.address == address]
        for one in found:
            self._inherited.remove(one)
        if not found:
            try:
                made = bind(host, port)
            except OSError as err:
                text = f"{err.strerror}; another address can be set with {_SET_WITH[name]}"
                raise OSError(err.errno, text) from None
            found = [Listener(name, address, sock) for sock in made]
        self._open += [Listener(name, one.address, one.sock) for one in found]

    def check_used(self) -> None:
        """Raises ConfigError if an inherited socket is not used."""
        for one in self._inherited:
            raise ConfigError(
                [
                    f"LISTEN_FDS: no listener uses the socket {one.name!r} at "
                    f"{address_of(one.sock)}; configure its address, or name it "
                    f"with FileDescriptorName=: {', '.join(NAMES)}"
                ]
            )

    def drop_unused(self) -> None:
        """Closes the inherited sockets that the configuration does not use."""
        unused, self._inherited = self._inherited, []
        for one in unused:
            one.sock.close()

    @property
    def open_ones(self) -> list[Listener]:
        return list(self._open)

    def sockets(self, name: str) -> list[socket.socket]:
        return [one.sock for one in self._open if one.name == name]

    def copies(self, name: str) -> list[socket.socket]:
        """Return copies of the sockets for a server, which closes its copies itself."""
        return [sock.dup() for sock in self.sockets(name)]

    def port(self, name: str) -> int:
        """Return the TCP port of a listener; 0: it has no socket, or a Unix socket."""
        for sock in self.sockets(name):
            if sock.family != socket.AF_UNIX:
                return int(sock.getsockname()[1])
        return 0

    def address(self, name: str) -> str:
        """Return the address of a listener, for people."""
        return ", ".join(address_of(sock) for sock in self.sockets(name))

    def close(self, name: str) -> None:
        """Closes the sockets of a listener. Other processes keep theirs."""
        for one in self._open:
            if one.name == name:
                one.sock.close()
        self._open = [one for one in self._open if one.name != name]

    def close_all(self) -> None:
        for name in NAMES:
            self.close(name)
        self.drop_unused()


def bind(host: str, port: int) -> list[socket.socket]:
    """Return listening sockets for all addresses of a host. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    made: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            sock = socket.socket(family, socket.SOCK_STREAM)
            made.append(sock)
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                sock.bind(address)
            except OSError as err:
                text = f"{join_host_port(host, port)}: {(err.strerror or str(err)).lower()}"
                raise OSError(err.errno, text) from None
            sock.listen(BACKLOG)
    except BaseException:
        for sock in made:
            sock.close()
        raise
    return made


def address_of(sock: socket.socket) -> str:
    """Return the address of a listening socket, as `host:port` or as a path."""
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        return f"unix:{name.decode() if isinstance(name, bytes) else name}"
    return join_host_port(name[0], name[1])


class OwnListeners:
    """The addresses on which this router itself listens, which must never be replicas.

    With its data port as a replica, requests would go round in a loop. With its admin port as a
    replica, every client of the data port could reach the admin port. A source of discovery may
    name any address, so each replica is compared when it joins, and each address that its name
    resolves to when a connection is opened. The ports are fixed until the router ends.
    """

    def __init__(self, config: Config) -> None:
        """Until `opened` is called, the listeners have the configured addresses."""
        texts = (config.listen, config.admin.listen, config.admin.probes_listen)
        self._found: list[tuple[str, str, int]] = [
            (_SETTINGS[name], *address)
            for name, text in zip(NAMES, texts, strict=True)
            if text is not None
            for address in split_addresses(text)
        ]

    def opened(self, listeners: Listeners) -> None:
        """Uses the addresses of these sockets from now on."""
        self._found = [
            (_SETTINGS[name], *sock.getsockname()[:2])
            for name in NAMES
            for sock in listeners.sockets(name)
            if sock.family != socket.AF_UNIX
        ]

    def at(self, host: str, port: int) -> str:
        """Return the setting of the listener at an address of a replica; "": there is none."""
        for setting, own_host, own_port in self._found:
            if port == own_port and leads_to(host, own_host, _is_local):
                return setting
        return ""

    def has(self, host: str, port: int) -> bool:
        return self.at(host, port) != ""


def _is_local(host: str) -> bool:
    """Whether an IP address belongs to this machine.

    The kernel chooses the address itself as the source of packets to an own address. Connecting a
    UDP socket sends nothing.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            return ip_address(probe.getsockname()[0]) == ip_address(host)
    except (OSError, ValueError):  # No route to the address, or a name.
        return False
