"""The addresses on which this router itself listens, which must never be replicas.

With its data port as a replica, requests would go round in a loop. With its admin port as a
replica, every client of the data port could reach the admin port. A source of discovery may name
any address, so each replica is compared when it joins, and each address that its name resolves to
when a connection is opened.

Must never: resolve a name, or send anything.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Final

from router.app.listeners import ADMIN, DATA, NAMES, PROBES, Listeners
from router.config.address import leads_to, split_addresses
from router.config.model import Config

_SETTINGS: Final = {DATA: "listen", ADMIN: "admin.listen", PROBES: "admin.probes_listen"}


class OwnListeners:
    """The listeners of one router. The ports are fixed until it ends."""

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
