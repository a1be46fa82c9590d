"""Ports of 127.0.0.1 that stay free until a test or its process binds them.

The ports are below the kernel's ephemeral range. Any outgoing connection, and any socket that is
bound to port 0, could take a port of that range in the meantime.
"""

import errno
import functools
import random
import socket
from collections import deque
from pathlib import Path

_COUNT = 8000  # Number of ports below the ephemeral range that are used.
_random = random.SystemRandom()  # A test may seed `random`, in several processes at a time.
# The last returned ports: their servers may not have bound them yet.
_given: deque[int] = deque(maxlen=200)


def free_port(count: int = 1) -> int:
    """Return the first of `count` ports in a row that are free for TCP and UDP."""
    lowest = lowest_ephemeral()
    while True:
        first = _random.randrange(lowest - _COUNT, lowest - count)
        ports = range(first, first + count)
        if not any(port in ports for port in _given) and all(_is_free(port) for port in ports):
            _given.extend(ports)
            return first


def bind_free(listener: socket.socket) -> None:
    """Bind a socket to a free port, also if other processes of tests look for one, too."""
    while True:
        try:
            return listener.bind(("127.0.0.1", free_port()))
        except OSError as err:
            if err.errno != errno.EADDRINUSE:
                raise


@functools.cache
def lowest_ephemeral() -> int:
    """Return the first port of the kernel's ephemeral range."""
    return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])


def _is_free(port: int) -> bool:
    with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tcp.bind(("127.0.0.1", port))
            udp.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
