"""Runs several emulated engines in one process, each on its own port.

The process prints JSON lines on standard output. Each engine has a line with its address (and the
address of its KV events, if any). A server beside the engines, if there is one, has a line with its
address. When all ports listen, the last line is `{"ready": true}`. The process ends on SIGTERM or
SIGINT. If requested, it also ends when its standard input ends. On every system, the end of
standard input shows that the parent process is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import uvloop
from aiohttp import web

from router.lab.emulator.engine import Engine
from router.lab.emulator.http.personas import persona_class
from router.lab.emulator.http.ranks import made
from router.lab.emulator.http.server import KEEP_ALIVE_S, make_app
from router.lab.emulator.settings import EngineSettings

if TYPE_CHECKING:
    from router.lab.emulator.http.kv_publisher import KvPublisher

# Makes a server that sees the engines of this process, from their applications.
Beside = Callable[[Sequence[web.Application]], web.Application]

_GRACE_S = 0.5  # seconds that running handlers may continue after the signal to stop


def run(
    engines: Sequence[EngineSettings],
    host: str,
    base_port: int,
    exit_with_stdin: bool = False,
    beside: Beside | None = None,
) -> int:
    """Serve until stopped; returns the exit status.

    Engines have the ports from `base_port` on; 0 means any free port for each engine. `beside`
    makes a server of the engines' applications, which gets one more port. Raises OSError, and
    listens on no port, if one of the ports is not available.
    """
    sockets: list[socket.socket] = []
    with contextlib.ExitStack() as opened:
        for index in range(len(engines) + (beside is not None)):
            sock = _listen(host, base_port + index if base_port else 0)
            opened.callback(sock.close)
            sockets.append(sock)
        uvloop.run(_serve(engines, sockets, exit_with_stdin, beside))
    return 0


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError with a message that contains the address."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(1024)
        sock.setblocking(False)
    except OSError as err:
        sock.close()
        raise OSError(err.errno, f"cannot listen on {host}:{port}: {err.strerror}") from None
    return sock


async def _serve(
    settings: Sequence[EngineSettings],
    sockets: Sequence[socket.socket],
    exit_with_stdin: bool,
    beside: Beside | None,
) -> None:
    """Serve until a signal to stop. `sockets` has one for each engine, then one for `beside`."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if exit_with_stdin:
        _watch(loop, sys.stdin.fileno(), stop)
    opened = contextlib.ExitStack()
    engines: list[Engine] = []
    runners: list[web.AppRunner] = []

    async def listen(app: web.Application, sock: socket.socket) -> None:
        runner = web.AppRunner(
            app,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=KEEP_ALIVE_S,
            shutdown_timeout=_GRACE_S,
        )
        runners.append(runner)
        await runner.setup()
        await web.SockSite(runner, sock).start()

    try:
        apps: list[web.Application] = []
        for one, sock in zip(settings, sockets, strict=False):
            ranks = made(Engine(one))
            engines += ranks
            apps.append(make_app(ranks[0], ranks[1:]))
            said: dict[str, object] = {"replica": one.name, "url": _url(sock)}
            if one.kv_events:
                for engine in reversed(ranks):
                    publisher = _publisher(one, sock)
                    engine.kv_listener = publisher
                    opened.callback(publisher.close)
                    said["kv_events"] = publisher.endpoint
                    said["kv_replay"] = publisher.replay_endpoint
            await listen(apps[-1], sock)
            _say(said)
        if beside is not None:
            await listen(beside(apps), sockets[-1])
            _say({"beside": _url(sockets[-1])})
        _say({"ready": True})
        await stop.wait()
    finally:
        await asyncio.gather(*(runner.cleanup() for runner in runners))
        for engine in engines:
            engine.close()
        opened.close()


def _publisher(settings: EngineSettings, sock: socket.socket) -> KvPublisher:
    """The publisher of an engine's KV events. Raises OSError if no port is free."""
    # Imported only here, because it needs pyzmq, which is optional.
    from router.lab.emulator.http.kv_publisher import KvPublisher

    url, host = _url(sock), sock.getsockname()[0]
    topic = settings.kv_events_topic.format(
        url=url, address=url.removeprefix("http://"), name=settings.name, model=settings.models[0]
    )
    payload = persona_class(settings.persona).kv_payload
    assert payload is not None, "the settings have checked that"
    return KvPublisher(host, topic, payload, settings.block_size)


def _watch(loop: asyncio.AbstractEventLoop, fd: int, stop: asyncio.Event) -> None:
    os.set_blocking(fd, False)

    def readable() -> None:
        try:
            gone = not os.read(fd, 4096)
        except BlockingIOError:
            return
        except OSError:
            gone = True
        if gone:
            loop.remove_reader(fd)
            stop.set()

    loop.add_reader(fd, readable)


def _url(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _say(value: dict[str, object]) -> None:
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()
