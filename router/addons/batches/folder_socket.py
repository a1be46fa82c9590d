"""The socket in the batch folder, over which other processes use the server of its owner.

Only one process has the folder, but during a restart two processes serve clients. The process that
has the folder listens on this socket, and the other one sends requests for files and batches there.
The socket's mode is 0600, so only processes of this user can connect. The server therefore trusts
the owner ID in a request, as for its own process. Called only in the worker's thread.

Must never: be needed by a process that has the folder. Some file systems have no sockets.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

_NAME: Final = "socket"


def listening(folder: Path) -> socket.socket:
    """Return the listening socket of the folder's owner. Raises OSError."""
    withdraw(folder)

    def listen(sock: socket.socket, address: str) -> None:
        os.fchmod(sock.fileno(), 0o600)  # the mode of the file that `bind` creates
        sock.bind(address)
        sock.listen()

    return _socket(folder, listen)


def withdraw(folder: Path) -> None:
    """Lets no more connections begin. The owner still accepts those that have begun."""
    (folder / _NAME).unlink(missing_ok=True)


def connected(folder: Path) -> socket.socket:
    """Return a connection to the process that has the folder. Raises OSError if there is none."""
    return _socket(folder, socket.socket.connect)


def _socket(folder: Path, act: Callable[[socket.socket, str], None]) -> socket.socket:
    # A socket's path has at most 107 bytes, and the path of the folder may be longer.
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)
        act(sock, f"/proc/self/fd/{handle}/{_NAME}")
    except BaseException:
        sock.close()
        raise
    finally:
        os.close(handle)
    return sock
