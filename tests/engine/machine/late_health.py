"""A relay in front of an engine that can hold back /health; everything else passes unchanged.

The engine works, so its streams and its metrics show work, as while its API server is busy.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_PROBE = b"GET /health"


@contextmanager
def late_health(port: int) -> Iterator[tuple[int, threading.Event]]:
    """Relay a free port to `port` of this machine.

    Yields the free port, and an event: while it is set, /health is not answered.
    """
    is_late = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    opened: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            opened.append(client)
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    def serve(client: socket.socket) -> None:
        try:
            begun = client.recv(65536)
            if begun.startswith(_PROBE) and is_late.is_set():
                while client.recv(65536):
                    pass
                client.close()
                return
            engine = socket.create_connection(("127.0.0.1", port))
            opened.append(engine)
            engine.sendall(begun)
        except OSError:
            client.close()
            return
        threading.Thread(target=pump, args=(engine, client), daemon=True).start()
        pump(client, engine)

    def pump(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        for side in (source, target):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1], is_late
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for side in opened:
            side.close()
