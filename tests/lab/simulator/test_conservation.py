"""For any traffic and faults, every request ends once, and no resource is held at the end.

`simulate` itself raises if a lease, a KV block or a place in the retry budget is left.
"""

from collections import Counter
from dataclasses import replace

from hypothesis import given, strategies as st

from router.config.model import Health, Hedging
from router.core.errors import Reason
from router.lab.simulator.scenario import Fault, Polls, Straggling
from router.lab.simulator.simulation import simulate
from router.lab.simulator.traffic import Arrival
from tests.examples import examples
from tests.lab.simulator.worlds import CORE, Kept, Script, blocks, world

REPLICAS = 3
# An engine small enough for queues, preemptions and requests that do not fit.
TIGHT = replace(CORE, max_num_seqs=3, max_num_batched_tokens=64, num_blocks=24)

# Copies of every hedgeable request: early, and at once.
EAGER = Hedging(policy="fixed", options={"delay_s": 0.1}, budget=1.0)
AT_ONCE = Hedging(policy="fixed", options={"delay_s": 0.0}, budget=1.0)

seconds = st.integers(0, 80).map(lambda tenths: tenths / 10)
requests = st.tuples(
    seconds,
    st.integers(1, 420),  # prompt tokens; the KV pool has 384
    st.integers(0, 90),  # output tokens
    st.integers(0, 3),  # number of the prompt with the same prefix
    st.booleans(),  # streamed
    st.booleans(),  # whether a further request follows
    st.sampled_from(["", "high"]),
)
faults = st.tuples(
    seconds,
    st.integers(0, REPLICAS - 1),
    st.sampled_from(["slow", "freeze", "kill"]),
    st.integers(1, 60).map(lambda tenths: tenths / 10),
    st.sampled_from([0.5, 3.0, 20.0]),
).map(lambda f: Fault(at=f[0], replica=f[1], kind=f[2], until=f[0] + f[3], factor=f[4]))


@examples(150)
@given(
    st.lists(requests, max_size=25),
    st.lists(faults, max_size=5),
    st.sampled_from(["round_robin", "kv_aware", "least_load", "prefix_affinity"]),
    st.integers(1, 3),  # routers
    st.sampled_from([0.0, 0.004]),  # seconds of network time
    st.sampled_from([0.0, 0.4]),  # seconds of delay of a poll
    st.booleans(),  # whether KV for the output is reserved, or requests are preempted
    st.sampled_from([Hedging(), EAGER, AT_ONCE]),
)
def test_every_arrival_ends_exactly_once(
    asked: list[tuple[float, int, int, int, bool, bool, str]],
    going_wrong: list[Fault],
    policy: str,
    routers: int,
    network_s: float,
    interval_s: float,
    reserve: bool,
    hedging: Hedging,
) -> None:
    arrivals = [
        Arrival(number, at, prompt, output, blocks(prompt, name), stream=stream, priority=priority)
        for number, (at, prompt, output, name, stream, _, priority) in enumerate(sorted(asked))
    ]
    ordered = sorted(asked)

    def follow(ended: Arrival, now: float) -> list[Arrival]:
        number = ended.number
        if number >= 100 or not ordered[number][5]:
            return []
        words = ended.blocks
        return [Arrival(number + 100, now, ended.prompt_tokens, ended.output_tokens, words)]

    scenario = world(
        replicas=REPLICAS,
        core=replace(TIGHT, reserve_output=reserve),
        policy=policy,
        routers=routers,
        network_s=network_s,
        interval_s=interval_s,
        polls=Polls(loss=0.2),
        faults=tuple(going_wrong),
        straggling=Straggling(share=0.3, factor=5.0),
        hedging=hedging,
        first_token_s=6.0,
        token_gap_s=3.0,
        health=Health(eject_base_s=1.0, slow_start_s=2.0, suspect_min_s=0.5, interval_s=1.0),
    )
    kept = Kept()
    totals = simulate(scenario, Script(arrivals, follow), kept)

    ends = Counter(one.arrival.number for one in kept.outcomes)
    answered = [one for one in kept.outcomes if one.reason is Reason.OK]
    followed = {one.arrival.number + 100 for one in answered if one.arrival.number < 100}
    expected = {arrival.number for arrival in arrivals}
    expected |= {n for n in followed if ordered[n - 100][5]}
    assert ends == Counter(expected)
    assert totals.requests == len(expected) == sum(totals.ends.values())
    assert totals.policy_errors == 0
    hedges = totals.hedges
    assert hedges.fired == hedges.won + hedges.lost + hedges.failed
    prompts = sum(max(one.arrival.prompt_tokens, 1) for one in kept.outcomes)
    # Copies to idle replicas cost no budget.
    assert hedges.fired_tokens - hedges.idle_tokens <= hedging.budget * prompts
    assert hedges.won == sum(one.hedge_won for one in kept.outcomes)
    assert hedges.wasted_tokens >= sum(one.wasted_tokens for one in kept.outcomes)
    ended_at = [one.ended for one in kept.outcomes]
    assert ended_at == sorted(ended_at)
    for one in kept.outcomes:
        arrival = one.arrival
        assert arrival.at <= one.dispatched <= one.ended
        assert one.first <= one.ended
        assert one.cached_tokens < arrival.prompt_tokens
        assert one.hedged or not (one.hedge_won or one.wasted_tokens)
        assert arrival.priority or not one.hedged
        if one.reason is Reason.OK:
            assert one.first >= arrival.at
            assert arrival.prompt_tokens + max(arrival.output_tokens, 1) - 1 <= 384
    # A request accepted by an engine ended there, was cancelled, or was lost with the engine.
    for engine in totals.engines:
        assert engine.finished + engine.aborted <= engine.requests
    assert sum(engine.finished for engine in totals.engines) >= len(answered)
