"""Takes the listening sockets that systemd has opened: socket activation, sd_listen_fds(3).

systemd sets three variables: LISTEN_PID (the process that may take the sockets), LISTEN_FDS (their
number; the first one is descriptor 3) and LISTEN_FDNAMES (their names, with colons between them).

Must never: leave the variables for child processes, or let them inherit the sockets.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping
from typing import Final

from router.app.listeners import NAMES, Listener, address_of
from router.core.errors import ConfigError

FIRST_FD: Final = 3  # SD_LISTEN_FDS_START
_VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def passed(environ: Mapping[str, str], pid: int) -> list[tuple[int, str]]:
    """Return the descriptor and the name of each socket that was passed to the process `pid`.

    Raises ConfigError if the variables contradict each other.
    """
    if environ.get("LISTEN_PID") != str(pid):
        return []
    count = environ.get("LISTEN_FDS", "")
    if not count.isascii() or not count.isdigit():
        raise ConfigError([f"LISTEN_FDS: {count!r} is not a number of sockets"])
    names = environ["LISTEN_FDNAMES"].split(":") if environ.get("LISTEN_FDNAMES") else []
    if names and len(names) != int(count):
        raise ConfigError([f"LISTEN_FDNAMES: has {len(names)} names for {count} sockets"])
    names = names or ["unknown"] * int(count)
    return [(FIRST_FD + n, name) for n, name in enumerate(names)]


def take(environ: MutableMapping[str, str], pid: int) -> list[Listener]:
    """Return the sockets that systemd passed, and remove the variables from `environ`.

    A socket whose name is no listener's name serves the listener whose configured address is the
    address of the socket. Raises ConfigError if a descriptor is not a listening stream socket.
    """
    found = passed(environ, pid)
    for name in _VARIABLES:
        environ.pop(name, None)
    return [_listener(fd, name) for fd, name in found]


def _listener(fd: int, name: str) -> Listener:
    try:
        os.set_inheritable(fd, False)
        sock = socket.socket(fileno=fd)
        is_listening = sock.type == socket.SOCK_STREAM and sock.getsockopt(
            socket.SOL_SOCKET, socket.SO_ACCEPTCONN
        )
    except OSError as err:
        raise ConfigError([f"LISTEN_FDS: descriptor {fd}: {err.strerror}"]) from None
    if not is_listening:
        raise ConfigError([f"LISTEN_FDS: descriptor {fd} ({name}) is not a listening socket"])
    sock.setblocking(False)
    return Listener(name, "" if name in NAMES else address_of(sock), sock)
