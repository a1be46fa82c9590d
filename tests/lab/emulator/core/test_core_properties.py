"""The engine core under any traffic: requests end once, blocks are conserved, runs repeat
exactly.
"""

from collections import Counter
from dataclasses import dataclass

from hypothesis import given, strategies as st

from router.lab.emulator.core.engine_core import (
    FINISHED,
    FIRST_TOKEN,
    TOKEN,
    CoreConfig,
    EngineCore,
    Request,
)
from router.lab.emulator.core.kv_events import KvEvent, Removed, Stored
from router.lab.emulator.core.timing import PROFILES
from tests.examples import examples
from tests.lab.emulator.core.engine_on_paper import Log

BLOCK, BLOCKS = 4, 12


@dataclass(frozen=True)
class Arrival:
    at: float
    prompt: int
    output: int
    family: int  # prompts of one family share their prefix
    priority: int
    leaves_after: float | None  # seconds until its client leaves; None: it stays


arrivals = st.builds(
    Arrival,
    at=st.floats(0, 2),
    prompt=st.integers(1, 24),
    output=st.integers(0, 20),
    family=st.integers(0, 2),
    priority=st.integers(-2, 2),
    leaves_after=st.none() | st.floats(0, 1),
)
configs = st.builds(
    CoreConfig,
    max_num_seqs=st.integers(1, 4),
    max_num_batched_tokens=st.integers(4, 40),
    num_blocks=st.just(BLOCKS),
    block_size=st.just(BLOCK),
    priority_scheduling=st.booleans(),
    prefix_caching=st.booleans(),
    token_events=st.just(True),
    reserve_output=st.booleans(),
    preempt_advantage=st.none() | st.integers(0, 3),
    kv_events=st.booleans(),
)
profiles = st.sampled_from(["fast", "instant", "llama2-70b-a100x8"])


def check(core: EngineCore[Request], live: set[str]) -> None:
    kv = core.kv
    assert kv.used + kv.free == BLOCKS
    assert 0 <= kv.used <= kv.peak <= BLOCKS
    holders = Counter(block for request in core.rows() for block in request._blocks)
    assert {block: block.refs for block in holders} == holders  # each block is taken exactly once
    assert len(holders) == kv.used
    assert core.config.reserve_output or not core._scheduler.promised
    assert 0 <= core._scheduler.promised <= kv.free
    assert core.running <= core.config.max_num_seqs
    assert (
        core.step_tokens + len(core._scheduler.batch.decoding) <= core.config.max_num_batched_tokens
    )
    assert core.running + core.waiting == len(live)
    if not core.running:
        assert (kv.used, core._scheduler.promised, core._scheduler.batch.context) == (0, 0, 0)


def replay(events: list[KvEvent], known: set[int]) -> None:
    for event in events:
        if isinstance(event, Stored):
            assert len(event.tokens) == len(event.hashes) * event.block_size
            if event.parent is None:
                assert event.hashes[0] % 1000 == 0  # a prompt's first block
            else:
                assert event.parent == event.hashes[0] - 1
            known |= set(event.hashes)
        elif isinstance(event, Removed):
            known.remove(event.hash)
        else:
            known.clear()


def play(
    traffic: list[Arrival], config: CoreConfig, profile: str
) -> tuple[Log, EngineCore[Request]]:
    """Run an engine to its end; invariants hold after every change."""
    core: EngineCore[Request] = EngineCore(config, PROFILES[profile])
    plan: list[tuple[float, int, str, Arrival]] = []
    for index, arrival in enumerate(traffic):
        plan.append((arrival.at, index, "comes", arrival))
        if arrival.leaves_after is not None:
            plan.append((arrival.at + arrival.leaves_after, index, "leaves", arrival))
    plan.sort(key=lambda entry: (entry[0], entry[1], entry[2]))
    log: Log = []
    live: set[str] = set()
    known: set[int] = set()  # blocks that a listener to the KV events assumes to be cached
    ended: Counter[str] = Counter()

    def run(until: float) -> None:
        while (due := core.next_event(until)) is not None and due <= until:
            before = core.clock
            for kind, request in core.advance(due):
                assert request.id in live
                log.append((core.clock, kind, request.id))
                if kind == FINISHED:
                    live.remove(request.id)
                    ended[request.id] += 1
            assert core.clock >= before
            check(core, live)
            if core.kv_log is not None:
                replay(core.kv_log, known)
                core.kv_log.clear()
                assert known == core.kv.hashes()

    for at, index, what, arrival in plan:
        run(at)
        id = str(index)
        if what == "comes":
            hashes = [arrival.family * 1000 + block for block in range(20)]
            tokens = [*range(arrival.prompt + arrival.output)]
            request = Request(id, arrival.prompt, arrival.output, hashes, arrival.priority, tokens)
            core.submit(request, at)
            live.add(id)
        elif core.abort(id, at):
            live.remove(id)
            ended[id] += 1
        check(core, live)
    run(float("inf"))
    assert not live
    assert ended == Counter({str(index): 1 for index in range(len(traffic))})
    return log, core


@examples(150)
@given(st.lists(arrivals, max_size=12), configs, profiles)
def test_every_request_ends_once_and_nothing_leaks(
    traffic: list[Arrival], config: CoreConfig, profile: str
) -> None:
    log, core = play(traffic, config, profile)
    assert not core._requests
    assert not core._scheduler.batch._finishing
    assert not core._scheduler.batch._growing
    assert core.finished + core.aborted == len(traffic)
    tokens = Counter(id for _, kind, id in log if kind != FINISHED)
    for at, kind, id in log:
        if kind == FINISHED:
            assert tokens[id] == traffic[int(id)].output, at
    assert core.generation_tokens == sum(tokens.values())
    firsts = [id for _, kind, id in log if kind == FIRST_TOKEN]
    assert len(firsts) == len(set(firsts))
    begun = set()
    for _, kind, id in log:
        if kind == FIRST_TOKEN:
            begun.add(id)
        elif kind == TOKEN:
            assert id in begun


@examples(50)
@given(st.lists(arrivals, max_size=10), configs, profiles)
def test_the_same_traffic_gives_the_same_events(
    traffic: list[Arrival], config: CoreConfig, profile: str
) -> None:
    assert play(traffic, config, profile)[0] == play(traffic, config, profile)[0]


@examples(60)
@given(st.lists(arrivals, max_size=10), configs)
def test_hits_are_whole_blocks_and_less_than_what_was_asked(
    traffic: list[Arrival], config: CoreConfig
) -> None:
    _, core = play(traffic, config, "fast")
    assert core.prefix_hits % BLOCK == 0
    assert core.prefix_hits <= core.prefix_queries
    if core.prefix_queries:
        assert core.prefix_hits < core.prefix_queries
