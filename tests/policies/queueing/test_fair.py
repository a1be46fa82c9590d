"""Fairness by tokens: the charges, and the bound that they guarantee (VTC)."""

from random import Random

import pytest

from policies.queueing.accounts import IDLE_MAX
from policies.queueing.contract import OrderPolicy, make_order
from policies.queueing.fair import Fair
from tests.policies.queueing.helpers import pushed, served, ticket


def counters(policy: OrderPolicy) -> dict[str, float]:
    assert isinstance(policy, Fair)
    return {name: a.counter for name, a in policy.books[2].keys.by_name.items()}


def exact(**options: float) -> OrderPolicy:
    return make_order("fair", {"width": 0.0, **options})


def test_tokens_count_not_requests() -> None:
    policy = exact()
    line = policy.line(2)
    pushed(line, [ticket(key="long", tokens=9980, output=10) for _ in range(50)])
    pushed(line, [ticket(key="short", tokens=480, output=10) for _ in range(500)])
    keys = [t.flow.account for t in served(policy, line, most=105)]
    assert keys.count("short") == pytest.approx(100, abs=2)


def test_output_weighs_twice_and_weights_share() -> None:
    policy = exact()
    line = policy.line(2)
    pushed(line, [ticket(key="reads", tokens=1000, output=0) for _ in range(100)])
    pushed(line, [ticket(key="writes", tokens=0, output=500) for _ in range(100)])
    pushed(line, [ticket(key="pays", weight=2.0, tokens=1000, output=0) for _ in range(100)])
    keys = [t.flow.account for t in served(policy, line, most=80)]
    assert (keys.count("reads"), keys.count("writes"), keys.count("pays")) == (20, 20, 40)


@pytest.mark.parametrize("unit", [1.0, 3e-6])
def test_prices_share_as_weights_do_whatever_the_money(unit: float) -> None:
    """Output costs five times as much as input, in any currency unit.

    The width for prefix choice does not change, because it is given in tokens.
    """
    policy = make_order("fair", {"input": unit, "output": 5 * unit, "width": 2000.0})
    line = policy.line(2)
    pushed(line, [ticket(key="reads", tokens=5000, output=0) for _ in range(50)])
    pushed(line, [ticket(key="writes", tokens=0, output=500) for _ in range(50)])
    taken = served(policy, line, most=30)
    assert [t.flow.account for t in taken].count("writes") == 20
    assert {t.flow.account for t in line.band(64, 0.0)} == {"reads", "writes"}
    first = line.first(0.0)
    assert first is not None and first.flow.account == "reads"
    line.take(first, 0.0)
    assert {t.flow.account for t in line.band(64, 0.0)} == {"writes"}


@pytest.mark.parametrize("width", [0.0, 5000.0])
def test_service_of_any_two_that_always_wait_differs_by_no_more_than_the_bound(
    width: float,
) -> None:
    """VTC's bound: 2 * max(w_p * L_input, w_q * M).

    M is one request here, whose whole output is charged; `width` may be added for prefix affinity.
    """
    rng = Random(7)
    policy = make_order("fair", {"width": width})
    line = policy.line(2)
    longest, output = 4000, 800

    def more(key: str) -> None:
        tokens, made = rng.randrange(1, longest + 1), rng.randrange(1, output + 1)
        line.push(ticket(key=key, tokens=tokens, output=made), 0.0)

    keys = [f"k{number}" for number in range(5)]
    for key in keys:
        for _ in range(3):
            more(key)
    service = dict.fromkeys(keys, 0.0)
    bound = 2 * (longest + 2 * output) + width
    for _ in range(3000):
        band = line.band(64, 0.0)
        chosen = rng.choice(band)  # a random choice, like a choice by prefix affinity
        line.take(chosen, 0.0)
        service[chosen.flow.account] += chosen.view.prompt_tokens + 2 * chosen.view.output_tokens
        policy.settled(chosen, chosen.view.prompt_tokens, chosen.view.output_tokens)
        more(chosen.flow.account)
        assert max(service.values()) - min(service.values()) <= bound


def test_an_idle_flow_saves_up_no_service() -> None:
    policy = exact()
    line = policy.line(2)
    idler = ticket(key="idler", tokens=100)
    line.push(idler, 0.0)
    pushed(line, [ticket(key="busy", tokens=100) for _ in range(300)])
    served(policy, line, most=200)
    pushed(line, [ticket(key="idler", tokens=100) for _ in range(100)])
    keys = [t.flow.account for t in served(policy, line, most=20)]
    assert keys.count("busy") >= 9


def test_all_counters_are_reset_when_no_flow_waits() -> None:
    policy = exact()
    line = policy.line(2)
    line.push(ticket(key="greedy", tokens=100_000), 0.0)
    served(policy, line)
    pushed(line, [ticket(key="greedy", tokens=10), ticket(key="other", tokens=10)])
    assert [t.flow.account for t in served(policy, line)] == ["greedy", "other"]


def test_the_excess_is_kept_for_a_bounded_number_of_idle_flows() -> None:
    policy = exact()
    line = policy.line(2)
    line.push(ticket(key="steady", tokens=10**9), 0.0)
    for number in range(IDLE_MAX + 500):
        line.push(ticket(key=f"k{number}", tokens=1000 + number), 0.0)
        first = line.first(0.0)
        assert first is not None
        line.take(first, 0.0)
        policy.settled(first, first.view.prompt_tokens, first.view.output_tokens)
    assert len(counters(policy)) <= IDLE_MAX + 2


def test_the_prefix_chooses_among_many_flows_not_among_many_of_one() -> None:
    """Flows get equal numbers of candidates; unused ones go to flows with more tickets."""
    policy = make_order("fair")
    line = policy.line(2)
    for key in range(4):
        for user in range(8):
            pushed(line, [ticket(key=f"k{key}", user=f"u{user}", tokens=9000) for _ in range(9)])
    flows = [(t.flow.account, t.flow.member) for t in line.band(64, 0.0)]
    assert [flows.count(flow) for flow in sorted(set(flows))] == [2] * 32
    few = policy.line(2)
    pushed(few, [ticket(key="many", tokens=9000) for _ in range(90)])
    pushed(few, [ticket(key="few", tokens=9000) for _ in range(3)])
    keys = [t.flow.account for t in few.band(64, 0.0)]
    assert (keys.count("many"), keys.count("few")) == (61, 3)
