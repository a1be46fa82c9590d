"""Scripts: equal for equal seeds, of the requested size and rate, with the intended sharing."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random

import msgspec
import pytest

from bench.fleet import capacity, engines, run, scenarios, workloads
from bench.fleet.script import Conversation, Script, Turn, message_tokens
from router.lab.emulator.core.engine_core import FINISHED, CoreConfig, EngineCore, Request

QUICK = workloads.Size.quick()


@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_a_seed_makes_one_script(name: str) -> None:
    make = workloads.WORKLOADS[name]
    script = make(40.0, 7, QUICK)
    assert script == make(40.0, 7, QUICK)
    assert script != make(40.0, 8, QUICK)
    assert msgspec.convert(msgspec.to_builtins(script), Script) == script
    starts = [conversation.at for conversation in script.conversations]
    assert starts == sorted(starts) and starts[0] > 0
    assert starts[-1] < script.until
    assert 0 < script.measure_from < script.until


def test_every_customer_asks_once_before_measuring_and_each_user_after() -> None:
    size = workloads.Size(groups=30, users=5)
    script = workloads.shared(40.0, 1, size)
    warm = Counter(c.system for c in script.conversations if c.at < script.measure_from)
    measured = Counter(c.system for c in script.conversations if c.at >= script.measure_from)
    assert len(warm) == 30 and set(warm.values()) == {1}
    assert measured.keys() == warm.keys() and set(measured.values()) == {5}
    prefixes = sorted(measured)
    assert all(not b.startswith(a[:16]) for a, b in pairwise(prefixes))
    assert {len(prefix) for prefix in prefixes} == {workloads.PREFIX_TOKENS * 4}


def test_every_conversation_fits_into_the_smallest_engine() -> None:
    limit = engines.Spec(groups=QUICK.groups).blocks * engines.BLOCK_TOKENS
    for name, make in workloads.WORKLOADS.items():
        longest = max(p + o for p, o in make(60.0, 3, workloads.Size()).sizes())
        assert longest < limit, name


def test_sizes_count_the_history_and_reuse_what_came_before() -> None:
    turns = (Turn("a" * 40, 5), Turn("b" * 80, 7))
    talk = Conversation(0.0, "s" * 400, turns)
    script = Script((talk, talk), 0.0, 1.0)
    first = message_tokens("s" * 400) + message_tokens("a" * 40) + 3
    second = first + 5 + message_tokens("b" * 80) + 3
    assert script.sizes() == [(first, 5), (second, 7)] * 2
    assert script.reusable() == [0, first + 5, message_tokens("s" * 400), first + 5]


SPEC = engines.Spec()


def test_counting_begins_before_the_first_request() -> None:
    for script in (
        scenarios.system_prompt(20, 0.7, 1, SPEC),
        scenarios.identical(20, 1),
        scenarios.cold_start(20, 0.7, 1, SPEC),
    ):
        assert script.measure_from == 0.0
        assert script.conversations[0].at >= scenarios.LEAD_S
        assert script.conversations[-1].at < script.until


@pytest.mark.parametrize(("last", "is_judged"), [(6.0, False), (0.0, False), (30.0, True)])
def test_a_restarted_replica_that_is_hardly_asked_is_not_judged(
    last: float, is_judged: bool
) -> None:
    outcome = scenarios.Outcome("back", 1.1, 475 + round(last), [95.0] * 5 + [last])
    scenarios.require_use(outcome)
    assert (outcome.hotspot is not None) == is_judged
    assert bool(outcome.problems) != is_judged


PROMPT, OUTPUT = 3000, 32


def engine() -> capacity.Engine:
    return engines.Spec().engine()


def backlog(rate: float, requests: int) -> float:
    """Seconds that the engine needs after the last arrival to become idle.

    Runs the engine's own core on a virtual clock under Poisson arrivals, without a prefix cache.
    """
    one = engine()
    config = CoreConfig(
        max_num_seqs=one.max_num_seqs,
        num_blocks=one.kv_tokens // engines.BLOCK_TOKENS,
        block_size=engines.BLOCK_TOKENS,
        prefix_caching=False,
        token_events=False,
    )
    core: EngineCore[Request] = EngineCore(config, one.timing)
    times = workloads.arrivals(Random(1), rate)
    finished = 0
    now = 0.0
    for number in range(requests):
        now = next(times)
        while (due := core.next_event(now)) is not None and due <= now:
            finished += sum(kind == FINISHED for kind, _ in core.advance(due))
        core.submit(Request(str(number), PROMPT, OUTPUT), now)
    last = now
    while (due := core.next_event(now)) is not None:
        now = max(now, due)
        finished += sum(kind == FINISHED for kind, _ in core.advance(now))
    assert finished == requests
    return now - last


def test_an_engine_saturates_where_the_formula_says() -> None:
    full = capacity.saturation(engine(), 1, [(PROMPT, OUTPUT)])
    seconds = 1500 / full
    assert backlog(0.8 * full, 1500) < 0.03 * seconds
    # Above the computed rate the backlog grows: at 1.25 times, by a fifth of the run's work.
    assert backlog(1.25 * full, 1500) == pytest.approx(seconds * (1 - 1 / 1.25), rel=0.25)


def test_hits_and_memory_raise_what_an_engine_can_carry() -> None:
    cold = capacity.saturation(engine(), 1, [(PROMPT, OUTPUT)])
    assert capacity.saturation(engine(), 1, [(PROMPT, OUTPUT)], [2400.0]) > 2 * cold
    small = replace(engine(), kv_tokens=PROMPT + OUTPUT)
    assert capacity.saturation(small, 1, [(PROMPT, OUTPUT)]) < cold


@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_a_workload_comes_at_the_load_asked_for(name: str) -> None:
    size = workloads.Size()
    found = run.prepare(name, 0.7, 1, size, engines.Spec())
    assert found.rate == pytest.approx(0.7 * found.cold_rate)
    assert len(found.script.sizes()) / found.script.until == pytest.approx(found.rate, rel=0.15)
    assert found.warm_rate >= found.cold_rate
    assert found.slo_s > run.SLO_FACTOR * engine().timing.prefill_s
