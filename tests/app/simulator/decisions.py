"""Plays one scenario through the proxy on sockets and through the simulator, and records decisions.

A routing policy records each attempt that is sent. In both programs, compiled or not, a hook of the
policy is called for every attempt. The policy draws from its own seeded generator, so an additional
choice on one side changes all later choices.

Must never: hold a fact of the scenario that only one side reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from time import monotonic
from typing import Any, ClassVar

from aiohttp import web

from policies.contract import C, Candidate, Context, Pick, RequestView, RoutingPolicy
from router.config.model import Classes, Config, Hedging, Polling, Prefix, Priority, Queue, Routing
from router.lab.emulator.engine import Engine
from router.lab.emulator.http.bodies import ChatBody, decode
from router.lab.emulator.http.faults import NONE, Faults
from router.lab.emulator.http.server import make_app
from router.lab.emulator.settings import EngineSettings
from router.lab.simulator.router import TOKEN_BYTES
from router.lab.simulator.scenario import Fault, Scenario, equal
from router.lab.simulator.simulation import Simulation
from router.lab.simulator.traffic import Arrival
from tests.harness import clocks
from tests.harness.messages import chat_body, post_json
from tests.harness.running import Line, Router, running
from tests.lab.simulator.worlds import Kept, Script

TICK_S = 0.1  # interval of the proxy's sweep, in seconds
POLICY = "noted_p2c"  # the name of `NotedP2C`, once a test has registered it


@dataclass(frozen=True, slots=True)
class Sent:
    """An attempt that was sent to a replica."""

    request: int
    attempt: int  # 0 is the first attempt of the request
    replica: str


@dataclass(frozen=True, slots=True)
class End:
    """How a request ended."""

    reason: str
    replica: str  # the replica that answered, else the last one that was asked
    attempts: int
    waited: bool  # whether the request waited in the queue
    hedged: bool
    hedge_won: bool


@dataclass(slots=True)
class Story:
    """The decisions of one program, proxy or simulator. Times are seconds since the beginning of
    the traffic.
    """

    sent: list[Sent] = field(default_factory=list)
    at: list[float] = field(default_factory=list)  # times of the attempts in `sent`
    ends: dict[int, End] = field(default_factory=dict)
    stall_s: float = 0.0  # the longest delay of a timer of the event loop
    log: bytes = b""  # the proxy's access log


@dataclass(slots=True)
class NotedP2C(RoutingPolicy):
    """Draws two replicas and takes the one with less load. Records attempts in `story`."""

    seed: ClassVar[int] = 1  # the next instance copies `seed`, `clock` and `story`
    clock: ClassVar[Callable[[], float]] = monotonic
    story: ClassVar[Story] = Story()

    _rng: Random = field(init=False, repr=False)
    _story: Story = field(init=False, repr=False)
    _clock: Callable[[], float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        cls = type(self)
        self._rng, self._story, self._clock = Random(cls.seed), cls.story, cls.clock

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        one, other = self._rng.sample(sorted(candidates, key=lambda found: found.id), 2)
        return Pick(one if one.load <= other.load else other, "lower")

    def on_dispatch(self, view: RequestView, candidate: Candidate, ctx: Context) -> None:
        self._story.sent.append(Sent(int(view.session or -1), view.attempts, candidate.id))
        self._story.at.append(self._clock())


@dataclass(frozen=True, kw_only=True)
class World:
    """The description of the scenario, read by the proxy's and by the simulator's side."""

    engines: EngineSettings  # settings of the engine of each replica
    replicas: int
    arrivals: tuple[Arrival, ...]
    faults: tuple[Fault, ...]
    queue: Queue
    classes: Classes = field(default_factory=Classes)
    hedging: Hedging
    health: dict[str, Any]
    seed: int = 1  # seed of the policy


def content(number: int, tokens: int) -> str:
    """A prompt of `tokens` tokens, chat template included, that shares no prefix with another
    prompt.
    """
    bare = len(decode(_raw(f"{number:04}"), ChatBody).prompt_bytes()) // 4
    return f"{number:04}" + "word" * (tokens - bare)


def _raw(text: str) -> bytes:
    return post_json("/", chat_body(messages=_messages(text))).partition(b"\r\n\r\n")[2]


def _messages(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


# -- the simulator --------------------------------------------------------------------------------


def by_simulator(world: World, *, network_s: float = 0.001, seed: int = 1) -> Story:
    """Simulate the scenario."""
    scenario = Scenario(
        groups=equal(world.replicas, world.engines.core_config(), world.engines.timing()),
        config=Config(
            routing=Routing(policy=POLICY),
            polling=Polling(interval_s=0.0),
            hedging=world.hedging,
            queue=world.queue,
            classes=clocks.classes(world.classes),
            priority=Priority(steps=False),
            health=clocks.health(**{**clocks.QUIET_HEALTH, **world.health}),
            prefix=Prefix(block_bytes=int(world.engines.block_size * TOKEN_BYTES)),
        ),
        network_s=network_s,
        faults=world.faults,
        sample_s=0.0,
        seed=seed,
    )
    story, kept = Story(), Kept()
    for arrival in world.arrivals:
        # The policy reads the request number from the session.
        arrival.session = str(arrival.number)
    NotedP2C.seed, NotedP2C.story = world.seed, story
    script = Script(world.arrivals, block_tokens=world.engines.block_size)
    # The simulation makes the policy before its clock can be read.
    NotedP2C.clock = lambda: simulation.clock.now
    simulation = Simulation(scenario, script, kept)
    simulation.run()
    for one in kept.outcomes:
        story.ends[one.arrival.number] = End(
            one.reason.value,
            one.replica,
            one.attempts,
            one.queued_s > 0.0 or not one.attempts,
            one.hedged,
            one.hedge_won,
        )
    return story


# -- the proxy ------------------------------------------------------------------------------------


class Server:
    """An emulated engine on a port. It can fail as a killed process fails."""

    def __init__(self, engine: Engine, runner: web.AppRunner, site: web.TCPSite) -> None:
        self.engine = engine
        self.url = "http://{}:{}".format(*runner.addresses[0][:2])
        self._runner = runner
        self._site = site

    def begin(self, fault: Fault) -> None:
        if fault.kind == "kill":
            self._site._server.close()  # type: ignore[union-attr]
            for connection in self._runner.server.connections:  # type: ignore[union-attr]
                connection.transport.abort()  # type: ignore[union-attr]
        else:
            self.engine.set_faults(_AS_ENGINE[fault.kind](fault))

    def end(self, fault: Fault) -> None:
        assert fault.kind != "kill"
        self.engine.set_faults(NONE)


_AS_ENGINE: dict[str, Callable[[Fault], Faults]] = {
    "freeze": lambda fault: Faults(freeze=True),
    "slow": lambda fault: Faults(slow=fault.factor),
}


@asynccontextmanager
async def served(settings: EngineSettings) -> AsyncIterator[Server]:
    engine = Engine(settings)
    runner = web.AppRunner(make_app(engine), handler_cancellation=True, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield Server(engine, runner, site)
    finally:
        await runner.cleanup()
        engine.close()
        await asyncio.sleep(0)


async def by_proxy(world: World) -> Story:
    """Run the scenario in real time: clients, the app and emulated engines on sockets."""
    story = Story()
    began = monotonic() + 3600.0
    NotedP2C.seed, NotedP2C.story = world.seed, story
    NotedP2C.clock = lambda: monotonic() - began
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(served(world.engines)) for _ in range(world.replicas)
        ]
        router = await stack.enter_async_context(
            running(
                *(server.url for server in servers),
                policy=POLICY,
                queue=world.queue,
                classes=world.classes,
                hedging=world.hedging,
                health=world.health,
                priority=Priority(steps=False),
                trusted_proxies=("127.0.0.0/8",),
                quiet_control_plane="the times of polls and probes depend on no seed",
            )
        )
        asked = {one.number: _request(one) for one in world.arrivals}
        began = monotonic() + 0.2
        for fault in world.faults:
            server = servers[fault.replica]
            _at(began + fault.at, partial(server.begin, fault))
            if fault.kind != "kill":
                _at(began + fault.until, partial(server.end, fault))
        watch = asyncio.create_task(_watch(story))
        await asyncio.gather(
            *(_ask(router, asked[one.number], began + one.at) for one in world.arrivals)
        )
        lines = await router.log(len(world.arrivals))
        story.log = router.log_path.read_bytes()
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
    story.ends = {int(line["id"]): _end(line) for line in lines}
    return story


def _at(when: float, act: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(max(0.0, when - monotonic()), act)


async def _watch(story: Story) -> None:
    """Measure the longest delay of the event loop."""
    while True:
        due = monotonic() + 0.005
        await asyncio.sleep(0.005)
        story.stall_s = max(story.stall_s, monotonic() - due)


def _request(arrival: Arrival) -> bytes:
    body = chat_body(
        stream=arrival.stream,
        messages=_messages(content(arrival.number, arrival.prompt_tokens)),
        max_tokens=arrival.output_tokens,
        ignore_eos=True,
        prompt_cache_key=str(arrival.number),  # the policy sees this key as the session
    )
    headers = [f"x-request-id: {arrival.number}"]
    if arrival.priority:
        headers.append(f"x-priority: {arrival.priority}")
    if arrival.within:
        headers.append(f"x-forwarded-for: {arrival.within}")
    if arrival.tenant:
        headers.append(f"authorization: Bearer {arrival.tenant}")
    return post_json("/v1/chat/completions", body, *headers)


async def _ask(router: Router, data: bytes, when: float) -> None:
    await asyncio.sleep(max(0.0, when - monotonic()))
    await router.ask(data, "POST")


def _end(line: Line) -> End:
    tried = line["tried"]
    kinds = [kind for _, kind, _, _ in tried]
    won = [kind for _, kind, reason, _ in tried if reason == "ok"]
    return End(
        line["reason"],
        line.get("replica") or (tried[-1][0] if tried else ""),
        len(tried),
        line.get("queue_ms") is not None or not tried,
        "hedge" in kinds,
        won == ["hedge"],
    )
