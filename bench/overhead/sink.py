"""A syslog sink: reads datagrams from a Unix socket, as a machine's log daemon would.

HAProxy drops lines nobody reads, which would make its log cheaper than it is. Started with the
socket's path; prints `true` when bound, and ends when its stdin closes.
"""

from __future__ import annotations

import os
import socket
import sys
import threading


def main(path: str) -> None:
    sink = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    sink.bind(path)
    os.chmod(path, 0o666)

    def until_parent_ends() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=until_parent_ends, daemon=True).start()
    print("true", flush=True)
    line = bytearray(8192)
    while True:
        sink.recv_into(line)


if __name__ == "__main__":
    main(sys.argv[1])
