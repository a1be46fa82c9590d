"""A client on a bare socket, which controls when and how it disconnects."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

TIMEOUT_S = 60.0  # time limit of any one send or receive


class RawClient:
    """One POST in progress. The request is sent on construction; nothing is read until
    requested.
    """

    def __init__(self, url: str, path: str, body: dict[str, Any]) -> None:
        host, port = url.removeprefix("http://").split(":")
        payload = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {host}:{port}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(payload)}\r\n\r\n"
        )
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self._socket.sendall(head.encode() + payload)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *raised: object) -> None:
        self._socket.close()

    def read_events(self, count: int) -> None:
        """Read until at least `count` events have arrived."""
        received = b""
        while received.count(b"data: ") < count:
            chunk = self._socket.recv(65536)
            assert chunk, f"ended after {received[-500:]!r}"
            received += chunk

    def leave(self) -> None:
        """Close normally: a FIN."""
        self._socket.close()

    def vanish(self) -> None:
        """Close like a process that was killed with unread data: a reset."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()
