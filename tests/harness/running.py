"""An app between real sockets, with checks that it releases everything.

`scenario` turns an async test into one with a time limit that fails on any unhandled exception of
the loop, and on any remaining task or open file. `running` starts replicas and an app. At the end
it checks that every count of the app's census is zero: first while it still runs, then after its
stop. `routed` is a scenario with an app around the whole test.

The app has the shipped configuration (probes, polls, queue, hedging, retries, the default policy,
models as the replicas list them). In real time, its intervals are the shorter ones of `clocks.py`;
in a `virtual_scenario`, they are the shipped ones.
"""

import asyncio
import functools
import gc
import inspect
import json
import os
import resource
import tempfile
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from time import sleep as real_sleep
from typing import Any, ParamSpec

import msgspec
import uvloop

from router.app import App
from router.config.model import (
    AccessLog,
    Admin,
    Config,
    Drain,
    Limits,
    Replica,
    Retry,
    Routing,
    Timeouts,
)
from router.core.errors import Reason
from router.dispatch.usage.token_counts import Usage
from tests.harness import clocks
from tests.harness.client import RawClient
from tests.harness.messages import chat, request
from tests.harness.reading import Response, error_of
from tests.harness.replica import Behaviour, HostileReplica, eventually
from tests.harness.virtual_time import LIMIT_S, is_virtual, run_virtual

P = ParamSpec("P")
Line = dict[str, Any]
TOLD_NOTHING = {"priority": "none"}  # a replica that gets no priority number from the router


def scenario(
    test: Callable[P, Coroutine[Any, Any, None]], *, limit_s: float = 40.0
) -> Callable[P, None]:
    """Run an async test under uvloop, with a time limit, and check that nothing remains."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_bounded(lambda: test(*args, **kwargs), limit_s)

    return run


def virtual_scenario(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A scenario in virtual time (`virtual_time.py`), with the shipped intervals."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_bounded(lambda: test(*args, **kwargs), LIMIT_S, run_virtual)

    return run


def long_scenario(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A scenario of many cases or several processes: the same checks, a longer time limit."""
    return scenario(test, limit_s=120.0)


def run_bounded(
    body: Callable[[], Awaitable[None]],
    limit_s: float,
    run: Callable[[Coroutine[Any, Any, None]], None] = uvloop.run,
) -> None:
    """Run `body` in its own loop and check the loop, its tasks and the open files."""
    _warm_up()
    with warnings.catch_warnings():
        # The previous test may have failed, and left files open.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    gc.freeze()  # existing objects of the suite are not scanned again for every test
    files = open_files()
    failures: list[dict[str, Any]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context))
        async with asyncio.timeout(limit_s):
            await body()
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left behind: {left}"

    run(main())
    gc.collect()
    assert not failures, f"the loop had to handle: {failures}"
    left = {fd: name for fd, name in open_files().items() if fd not in files}
    assert not left, f"files left open: {left}"


@functools.cache
def _warm_up() -> None:
    """Let libuv open the files that it opens once per process and never closes."""
    uvloop.run(asyncio.sleep(0))


def open_files() -> dict[int, str]:
    """This process's open files: descriptor -> its target."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the descriptor of the directory listing itself
    return found


@contextmanager
def no_files_left(*, spare: bool = False) -> Iterator[None]:
    """Lower this process's limit, so that no file can be opened, whichever descriptor becomes free.

    `spare`: a descriptor that is closed meanwhile may be used again. libuv does this with a spare
    one, to accept and close a connection.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = 0
    if spare:
        limit = os.dup(0)  # the lowest free one
        os.close(limit)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Router:
    """A running app with its replicas, its clients and its access log."""

    def __init__(
        self, app: App, config: Config, replicas: list[HostileReplica], log_path: Path
    ) -> None:
        self.app = app
        self.config = config
        self.next = config  # the configuration that the next reload reads
        self.replicas = replicas
        self.clients: list[RawClient] = []
        self.log_path = log_path

    @property
    def port(self) -> int:
        return self.app.port

    @property
    def replica(self) -> HostileReplica:
        return self.replicas[0]

    def change(self, **fields: Any) -> None:
        """Change the configuration that the next reload reads."""
        self.next = msgspec.structs.replace(self.next, **fields)

    def at(self, index: int, **fields: Any) -> Replica:
        """Configuration of one of the replicas as at the start, with these fields changed."""
        return msgspec.structs.replace(self.config.replicas[index], **fields)

    async def client(self, *, receive_buffer: int | None = None) -> RawClient:
        """A new client connection; closed at the end."""
        client = await RawClient.connect(self.port, receive_buffer=receive_buffer)
        self.clients.append(client)
        return client

    async def send(self, *data: bytes) -> RawClient:
        """Send a request on a new connection, and return the connection."""
        client = await self.client()
        await client.send(*data)
        return client

    async def ask(self, data: bytes | None = None, method: str = "GET") -> Response:
        """Send one request on its own connection and read its response to the end.

        None: a chat completion that is not streamed.
        """
        client = await self.send(chat() if data is None else data)
        response = await client.recv_response(method)
        client.close()
        return response

    async def admin(
        self, path: str, method: str = "GET", *fields: str, body: Any = None
    ) -> Response:
        """Send one request to the admin port; `body`: bytes, or a value that is sent as JSON."""
        client = await RawClient.connect(self.app.admin_port)
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        try:
            await client.send(request(path, "Connection: close", *fields, method=method, body=body))
            return await client.recv_response(method)
        finally:
            client.close()

    def usages(self) -> list[Usage]:
        """The usage of every request that ends from now on, as given to the access log."""
        log = self.app.parts.log
        found: list[Usage] = []
        encode_into = log._encode_into

        def listen(record: Any, buffer: bytearray, at: int) -> None:
            counts = (record.prompt_tokens, record.output_tokens, record.cached_tokens)
            found.append(Usage(*counts, record.exact))
            encode_into(record, buffer, at)

        log._encode_into = listen  # compiled methods cannot be replaced
        return found

    def lines(self) -> list[Line]:
        """The access log as written so far.

        `attempts` is replaced by their number; `tried` has the records.
        """
        if is_virtual():
            sink = self.app.parts.log._sink
            while sink is not None and sink.waiting_bytes:  # its thread does not know this clock
                real_sleep(0.0005)
        if not self.log_path.exists():
            return []
        text = self.log_path.read_text()
        lines = [json.loads(line) for line in text.split("\n")[:-1]]
        for line in lines:
            line["tried"] = line.get("attempts", [])
            line["attempts"] = len(line["tried"])
        return lines

    async def log(self, count: int = 1, *, kind: str | None = None) -> list[Line]:
        """Wait for `count` access log lines (of that kind); more than that fails.

        A line may be written after its answer was read, because the log is written by a thread.
        """

        def written() -> list[Line]:
            return [line for line in self.lines() if kind in (None, line["kind"])]

        await eventually(lambda: len(written()) >= count, f"{count} access log lines")
        lines = written()
        assert len(lines) == count, lines
        return lines

    async def reason(self) -> str:
        """The reason of the only request."""
        return str((await self.log())[0]["reason"])

    async def answers_early(self) -> None:
        """Wait until every request that has no answer yet got the router's own 200."""
        exchanges = self.app.parts.dispatcher.exchanges
        await eventually(
            lambda: bool(exchanges) and all(one.reply.status == 200 for one in exchanges),
            "an early 200",
        )

    def busy(self) -> dict[str, int]:
        """Resources held for requests: without probers, pollers and idle connections.

        Each idle pooled connection has one timer, and the fleet has one timer while a replica is
        ejected; any further timer belongs to a request that is over.
        """
        census = self.app.census()
        census.pop("probes")
        census.pop("polls")
        census["timers"] = max(0, census.pop("parties") - census.pop("replica_idle") - 1)
        return {key: n for key, n in census.items() if n}

    async def quiet(self) -> None:
        """Wait until no request is running."""
        try:
            await eventually(lambda: not self.busy(), "quiet")
        except AssertionError:
            raise AssertionError(f"still held when all is over: {self.busy()}") from None


def routed(
    *behaviours: Behaviour | str, virtual: bool = False, **settings: Any
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """A scenario around one app: the test's first parameter is `running` with these arguments.

    The behaviours are shared by all cases of the test, so they must keep no state.
    """

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @functools.wraps(test)
        async def run(**arguments: Any) -> None:
            async with running(*behaviours, **settings) as router:
                await test(router, **arguments)

        signature = inspect.signature(test)  # pytest must not look for a fixture `router`
        others = list(signature.parameters.values())[1:]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return (virtual_scenario if virtual else scenario)(run)

    return decorate


def assert_error(response: Response, reason: Reason, status: int | None = None) -> None:
    """A whole, OpenAI-shaped error response of this reason."""
    assert response.status == (reason.status if status is None else status), response
    assert response.complete, response
    assert response.error()["code"] == reason.value, response


def assert_cut_stream(response: Response, reason: Reason) -> None:
    """A committed stream that was cut: an error event, and an end that no parser accepts."""
    assert response.status == 200, response
    assert not response.complete, response
    events = response.events()
    assert events, response
    assert error_of(json.loads(events[-1]))["code"] == reason.value, events
    assert "[DONE]" not in events, events


def assert_error_event(response: Response, reason: Reason) -> None:
    """A committed stream without content: a whole response with an error event."""
    assert (response.status, response.complete) == (200, True), response
    *before, last = response.events()
    assert not before, response
    assert error_of(json.loads(last))["code"] == reason.value, response


@asynccontextmanager
async def running(
    *behaviours: Behaviour | HostileReplica | str,
    timeouts: dict[str, Any] | None = None,
    limits: dict[str, Any] | None = None,
    retry: dict[str, Any] | None = None,
    health: dict[str, Any] | None = None,
    polling: dict[str, Any] | None = None,
    replica: dict[str, Any] | None = None,
    drain: dict[str, Any] | None = None,
    access_log: dict[str, Any] | None = None,
    admin: Admin = Admin(listen="127.0.0.1:0"),  # noqa: B008  (frozen)
    policy: str = Routing().policy,
    replicas: tuple[Replica, ...] | None = None,
    quiet_control_plane: str = "",
    **config: Any,
) -> AsyncIterator[Router]:
    """Start one replica per behaviour (or the given ones, or a bare URL) and an app for them.

    A test that depends on the order of replicas passes a `policy`. `replicas`: their configuration,
    if it differs between them; by default their IDs are r0, r1, ... A reload reads `Router.next`.
    `quiet_control_plane` is for a test that probes and polls would disturb, and gives the reason.
    Then only the probes at the start are sent.
    """
    if quiet_control_plane:
        health = {**clocks.QUIET_HEALTH, **(health or {})}
        polling = {**clocks.QUIET_POLLING, **(polling or {})}
    hostiles: list[HostileReplica] = []
    urls: list[str] = []
    for behave in behaviours:
        if isinstance(behave, str):
            urls.append(behave)
            continue
        hostile = behave if isinstance(behave, HostileReplica) else HostileReplica(behave)
        if not hostile.port:
            hostile.start()
        hostiles.append(hostile)
        urls.append(hostile.url)
    with tempfile.TemporaryDirectory(prefix="hedgerow-test-") as folder:
        log_path = Path(folder) / "access.log"
        settings = Config(
            listen="127.0.0.1:0",
            admin=admin,
            replicas=replicas
            or tuple(
                Replica(**{"url": url, "id": f"r{n}", **(replica or {})})
                for n, url in enumerate(urls)
            ),
            routing=Routing(policy=policy),
            limits=Limits(**(limits or {})),
            timeouts=Timeouts(**(timeouts or {})),
            retry=Retry(**(retry or {})),
            health=clocks.health(**(health or {})),
            polling=clocks.polling(**(polling or {})),
            access_log=AccessLog(**{"path": str(log_path), "flush_s": 0.02, **(access_log or {})}),
            drain=Drain(**{"lame_duck_s": 0.0, "grace_s": 1.0, **(drain or {})}),
            **{**config, "classes": clocks.classes(config.get("classes"))},
        )
        app = App(settings)
        router = Router(app, settings, hostiles, log_path)
        app.read_again = lambda: router.next
        await app.start()
        try:
            yield router
            for client in router.clients:
                client.close()
            await router.quiet()
        finally:
            for client in router.clients:
                client.close()
            await app.stop()
            for hostile in hostiles:
                await hostile.stop()
        census = {key: n for key, n in app.census().items() if n}
        assert not census, f"held after the stop: {census}"
        for hostile in hostiles:
            assert not hostile.failures, hostile.failures
            for connection in hostile.connections:
                assert connection.reader.error is None, connection.reader.error
