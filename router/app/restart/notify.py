"""Reports the state of the process to systemd: sd_notify(3), for units with Type=notify.

Without NOTIFY_SOCKET nothing is sent. A message that cannot be sent is lost; the router continues.

Must never: block, or raise into its caller.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from time import clock_gettime_ns
from typing import Final

_CLOCK_MONOTONIC: Final = 1


class Notifier:
    """Sends datagrams to the socket that NOTIFY_SOCKET names."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        # An address that begins with @ is in Linux's abstract namespace.
        self._address = "\0" + path[1:] if path.startswith("@") else path

    def ready(self, status: str = "") -> None:
        """The start, or a reload or handover that was announced, has ended.

        `status`: a text for people, which `systemctl status` shows until the next report.
        """
        self._send("READY=1", f"STATUS={status.replace(chr(10), ' ')}")

    def reloading(self) -> None:
        """A reload or a handover begins; `ready` or `replaced` ends it."""
        microseconds = clock_gettime_ns(_CLOCK_MONOTONIC) // 1000
        self._send("RELOADING=1", f"MONOTONIC_USEC={microseconds}", "STATUS=")

    def replaced(self, pid: int) -> None:
        """The process `pid` is the main process of the service from now on."""
        self._send(f"MAINPID={pid}", "READY=1", "STATUS=")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            try:
                sock.sendto("\n".join(lines).encode(), socket.MSG_DONTWAIT, self._address)
            except OSError:
                pass
