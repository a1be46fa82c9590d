"""The router under attack, its replicas, and the verdict on what the attack did to it."""

import asyncio
import json
import mmap
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from router.config.keys import KeyLine, hash_of, line_of
from tests.abuse.watched import PAGE, TICK_S
from tests.faults.clients.test_slow_readers_in_memory import resident_bytes
from tests.faults.process.metrics import number, scrape
from tests.harness import kit


def page_price() -> float:
    """How much more a fresh page of memory costs here than on a usual machine, 1 to 4.

    Some virtual machines need ten times the CPU time of others for a page fault, and large bodies
    are mostly page faults. A usual machine needs 0.3 to 1 µs.
    """
    pages = 8192
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
        before = time.process_time()
        for page in range(pages):
            memory[page * mmap.PAGESIZE] = 1
        each_s = (time.process_time() - before) / pages
    return min(4.0, max(1.0, each_s / 1e-6))


PRICE = page_price()
LOOP_S = 0.1 * PRICE  # limit of CPU seconds between two ticks of the loop
MEMORY = 128 * 1024 * 1024  # allowed growth in bytes over a router that has served a few requests
GOOD = "good"  # the model of a replica that no attack reaches
BAD = "m"  # the model of one hostile replica
PAIR = "n"  # the model of two other hostile replicas
STREAM = (
    kit.SSE_HEAD
    + kit.chunk(kit.role())
    + kit.chunk(kit.token("t0"))
    + kit.chunk(kit.DONE)
    + kit.LAST_CHUNK
)


class LoopBlocked(AssertionError):
    """A step of the event loop used more than `LOOP_S` of CPU."""


def reproducible(attack: Callable[[], None]) -> None:
    """Run `attack`, and again if it blocked the loop: it fails if it did so three times in a row.

    On a virtual machine the CPU time of a thread includes time for which the host stopped the
    machine.
    """
    for attempt in range(3):
        try:
            return attack()
        except LoopBlocked:
            if attempt == 2:
                raise


class Victim:
    """A running router. Its replica `hostile` serves model `m`, `pair` serves `n`, `good` serves
    `good`.
    """

    def __init__(
        self,
        process: kit.RouterProcess,
        page: mmap.mmap,
        replicas: list[kit.HostileReplica],
        folder: Path,
    ) -> None:
        self.process = process
        self.folder = folder  # of its configuration
        self.good, self.hostile, *self.pair = replicas
        self.said: deque[str] = deque(maxlen=1000)  # lines of the router's standard error
        self.served = 0  # answers that bystanders received during attacks
        # Number of scripted hostile answers; number that the router has read.
        self.scripted = self.met = 0
        self.worst_s = 0.0  # longest CPU time between two ticks in any attack so far
        self._page = page
        self._bystander: kit.RawClient | None = None
        self._at_rest = 0

    @property
    def port(self) -> int:
        return self.process.port

    @property
    def resident(self) -> int:
        """Bytes of resident memory now."""
        return resident_bytes(self.process.child.pid)

    @property
    def grown(self) -> int:
        """Bytes of resident memory above the idle value."""
        return self.resident - self._at_rest

    async def settle(self) -> None:
        """Serve a few requests of every kind first, so that their memory is not attributed to an
        attack.
        """
        for model in (GOOD, BAD, PAIR):
            for stream in (False, True):
                client = await kit.RawClient.connect(self.port)
                await client.send(kit.chat(model=model, stream=stream))
                assert (await client.recv_response()).status == 200
                client.close()
        self._at_rest = self.resident

    def renew(self) -> None:
        """Close the router's connections to hostile replicas, so that it must open new ones.

        A scripted answer is only given on a new connection.
        """
        for replica in (self.hostile, *self.pair):
            for connection in replica.sessions:
                connection.fin()

    async def ends(self, second: str = "status") -> Counter[tuple[str, str]]:
        """Number of ended requests, by route kind and status, or another second label."""
        found: Counter[tuple[str, str]] = Counter()
        for (name, labels), value in (await scrape(self.process.admin_port)).items():
            if name == "hedgerow_requests_total":
                said = dict(labels)
                found[said["kind"], said[second]] += int(value)
        return found

    @asynccontextmanager
    async def attacked(
        self, memory: int = MEMORY, loop_s: float = LOOP_S, *, threads: bool = False
    ) -> AsyncIterator[None]:
        """The `with` block is an attack. Other clients must be served during the attack, and
        nothing may remain after it.

        Fails if the loop was blocked for `loop_s`, memory grew by more than `memory`, a client
        got another client's answer, the process died, or a request is still running after all
        clients have left. `threads`: the CPU time of other threads blocks the loop, too.
        """
        if self._bystander is not None:
            self._bystander.close()  # the client keeps all bytes that it has read
        PAGE.pack_into(self._page, 0, 0.0, 0.0, 0.0)
        over = asyncio.Event()
        bystander = asyncio.create_task(self._stand_by(over, memory))
        try:
            yield
        finally:
            over.set()
            await bystander
        await self._ask(0)
        await self._nothing_left()
        longest = await self._longest_step(threads)
        self.worst_s = max(self.worst_s, longest)
        if longest > loop_s:
            raise LoopBlocked(f"{longest:.3f} s of CPU between two ticks of the loop")
        failures = []
        for replica in (self.good, self.hostile, *self.pair):
            replica.connections = [c for c in replica.connections if not c.closed]
            failures += replica.failures
            replica.failures.clear()
        assert not failures, failures
        broken = [line for line in self.said if '"exception":' in line or line[:1] != "{"]
        self.said.clear()  # the next attack is judged by its own output only
        assert not broken, broken

    async def listen(self) -> None:
        """Read the process's output until it ends."""
        assert self.process.child.stderr is not None
        while line := await self.process.child.stderr.readline():
            self.said.append(line.decode("utf-8", "replace"))

    def close(self) -> None:
        if self._bystander is not None:
            self._bystander.close()

    async def _stand_by(self, over: asyncio.Event, memory: int) -> None:
        """Send requests to the good replica until the attack ends; each answer must belong to its
        request.
        """
        index = 0
        while not over.is_set():
            index += 1
            await self._ask(index)
            self.served += 1
            grown = self.grown
            assert grown <= memory, f"{grown / 2**20:.0f} MiB more than at rest"
            try:
                async with asyncio.timeout(0.02):
                    await over.wait()
            except TimeoutError:
                pass

    async def _longest_step(self, threads: bool) -> float:
        """CPU seconds of the loop's longest step, including the last one of the attack.

        A short attack ends before the loop has ticked.
        """
        _, before, _ = PAGE.unpack_from(self._page)
        for _ in range(1000):
            longest, ticks, of_all = PAGE.unpack_from(self._page)
            if ticks > before:
                return float(of_all if threads else longest)
            await asyncio.sleep(TICK_S)
        raise AssertionError("the loop is not watched")

    async def _ask(self, index: int) -> None:
        child = self.process.child
        assert child.returncode is None, f"it died: {child.returncode}, {list(self.said)[-20:]}"
        if self._bystander is None or self._bystander.closed:
            self._bystander = await kit.RawClient.connect(self.port)
        marker = f"bystander {index}"
        await self._bystander.send(kit.chat(model=GOOD, user=marker))
        answer = await self._bystander.recv_response()
        assert answer.status == 200, answer
        assert json.loads(answer.body)["user"] == marker, answer

    async def _nothing_left(self) -> None:
        port = self.process.admin_port
        left = -1.0
        for _ in range(500):
            left = await number(port, "hedgerow_requests_under_way")
            if not left:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"{left} requests are under way when all clients have gone")


# An engine that accepts any body and streams if the body seems to request a stream.
either = kit.answer_by(
    lambda asked: STREAM if b'"stream": true' in asked.body else kit.completion()
)


async def marked(connection: kit.ReplicaConnection) -> None:
    """A good engine whose answers name the user of the request."""
    while request := await connection.recv_request():
        try:
            asked = json.loads(bytes(request.body))
            user = asked.get("user") if isinstance(asked, dict) else None
        except (ValueError, RecursionError):
            user = None  # a hostile request without a model
        if b'"stream": true' in request.body:
            await connection.send(STREAM)
        else:
            await connection.send(kit.json_response({"choices": [], "user": user}))


def settings_of(seed: int, folder: Path) -> str:
    """Additional configuration for the rounds of this seed.

    Even seeds: none. Odd seeds: bodies are checked against a global limit and the models of a key.
    """
    if seed % 2 == 0:
        return ""
    line = KeyLine(name="a", hash=hash_of(b"a key"), models=(BAD,), ceiling="low")
    (folder / "keys.jsonl").write_text(line_of(line) + "\n")
    return f"priority: {{ceiling: normal}}\nkeys: {{file: '{folder}/keys.jsonl'}}\n"


@asynccontextmanager
async def under_attack(folder: Path, extra: str = "", files: int = 0) -> AsyncIterator[Victim]:
    """A compiled router with shipped settings and shorter intervals, and its four replicas.

    `files`: its open-file limit; 0: that of this process.
    """
    replicas = [
        kit.HostileReplica(marked, models=(GOOD,)),
        kit.HostileReplica(either, models=(BAD,)),
        *(kit.HostileReplica(either, models=(PAIR,)) for _ in range(2)),
    ]
    for replica in replicas:
        replica.start()
    config, path = folder / "config.yaml", folder / "ticks"
    path.write_bytes(bytes(PAGE.size))
    kit.write_config(config, *(r.url for r in replicas), extra="access_log: {path: ''}\n" + extra)
    with open(path, "r+b") as file:
        page = mmap.mmap(file.fileno(), PAGE.size)
    try:
        command = (sys.executable, "-m", "tests.abuse.watched", str(path))
        if files:
            command = ("sh", "-c", f'ulimit -n {files}; exec "$0" "$@"', *command)
        async with kit.serving(config, command=command) as process:
            said = process.events
            assert any(event.get("build") == "compiled" for event in said), said
            victim = Victim(process, page, replicas, folder)
            listening = asyncio.create_task(victim.listen())
            try:
                await victim.settle()
                yield victim
            finally:
                victim.close()
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
    finally:
        for replica in replicas:
            await replica.stop()
        page.close()
