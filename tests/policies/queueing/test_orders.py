"""Each order policy behaves as its file documents."""

import pytest

from policies.queueing.contract import PolicyConfigError, make_order, order_names
from tests.policies.queueing.helpers import pushed, served, ticket


def test_all_that_were_asked_for_are_there() -> None:
    assert order_names() == [
        *("aging", "dlpm", "drr", "edf", "fair", "fifo"),
        *("round_robin", "shortest", "slide", "strict"),
    ]


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("aging", "rate", 0.0),
        ("aging", "ceiling", 5.0),
        ("drr", "quantum", 0.0),
        ("dlpm", "output", -1.0),
        ("edf", "width", 1.5),
        ("fair", "output", -1.0),
        ("fair", "what", 1.0),
        ("shortest", "width", float("nan")),
        ("slide", "prefill_rate", 0.0),
        ("slide", "lateness", 0.0),
        ("slide", "width", -0.1),
        ("strict", "width", 2.0),
    ],
)
def test_a_bad_option_is_named(name: str, option: str, value: object) -> None:
    with pytest.raises(PolicyConfigError) as caught:
        make_order(name, {option: value})
    assert caught.value.option == option


def test_fair_must_charge_for_something() -> None:
    with pytest.raises(PolicyConfigError):
        make_order("fair", {"input": 0.0, "output": 0.0})


def test_fifo_uses_only_the_arrival() -> None:
    policy = make_order("fifo")
    tickets = [ticket(number=n, tokens=t) for n, t in ((2.4, 900), (1.6, 1), (2.0, 50))]
    line = pushed(policy.line(2), tickets)
    assert line.band(64, 0.0) == tickets
    assert served(policy, line) == tickets


def test_strict_goes_by_number() -> None:
    policy = make_order("strict", {"width": 0.0})
    tickets = [ticket(number=number) for number in (2.4, 1.6, 2.0, 1.6)]
    line = pushed(policy.line(2), tickets)
    assert line.band(64, 0.0) == [tickets[1], tickets[3]]
    assert served(policy, line) == [tickets[1], tickets[3], tickets[2], tickets[0]]


def test_age_passes_urgency_and_stops_at_high() -> None:
    policy = make_order("aging", {"rate": 0.1})
    old = ticket(number=4.0, arrival=0.0)
    young = ticket(number=2.0, arrival=19.0)
    assert served(policy, pushed(policy.line(4), [young, old]), 19.0) == [young, old]
    # After 21 more seconds the batch request is at high, the normal one nearly.
    line = pushed(policy.line(4), [young, old])
    assert line.rank(40.0)[0] == 1.0
    assert served(policy, line, 40.0) == [old, young]
    # At any age it does not overtake an earlier high request, or any critical request.
    high = ticket(number=1.0, arrival=0.0)
    late = ticket(number=4.0, arrival=0.0)
    critical = ticket(number=0.0, arrival=999.0)
    line = pushed(policy.line(4), [late, high, critical])
    assert served(policy, line, 1000.0) == [critical, high, late]


@pytest.mark.parametrize(("rate", "after_s"), [(0.1, 20.0), (1 / 300, 600.0)])
def test_what_the_rate_of_aging_means(rate: float, after_s: float) -> None:
    """Batch becomes normal after twenty seconds, or after ten minutes."""
    line = pushed(make_order("aging", {"rate": rate}).line(4), [ticket(number=4.0, arrival=0.0)])
    assert line.rank(after_s)[0] == pytest.approx(2.0)


def test_one_request_per_tenant_and_turn_whatever_it_costs() -> None:
    policy = make_order("round_robin")
    big = [ticket(key="big", tokens=100_000) for _ in range(4)]
    small = [ticket(key="small", tokens=1) for _ in range(4)]
    line = pushed(policy.line(2), big + small)
    taken = served(policy, line)
    assert [t.flow.account for t in taken] == ["big", "small"] * 4


def test_a_user_takes_from_his_key_only() -> None:
    """A key that invents a thousand users gets no larger share than a key with one user."""
    for name in ("fair", "round_robin", "drr", "dlpm"):
        policy = make_order(name)
        line = policy.line(2)
        pushed(line, [ticket(key="many", user=f"u{n}", tokens=4000) for n in range(1000)])
        pushed(line, [ticket(key="one", user="u", tokens=4000) for _ in range(1000)])
        keys = [t.flow.account for t in served(policy, line, most=200)]
        assert keys.count("one") == pytest.approx(100, abs=10), name
        # Within the key its users take turns.
        users = [t.flow.member for t in served(policy, line, most=200) if t.flow.account == "many"]
        assert len(set(users)) == len(users), name


def test_the_shortest_job_counts_its_output_too() -> None:
    policy = make_order("shortest")
    talker = ticket(tokens=10, output=2000)
    reader = ticket(tokens=3000, output=1)
    quick = ticket(tokens=500, output=100)
    line = pushed(policy.line(2), [talker, reader, quick])
    assert served(policy, line) == [quick, reader, talker]


def test_the_earliest_deadline_is_its_own_or_that_of_its_class() -> None:
    policy = make_order("edf")
    normal = ticket(number=2.0, arrival=0.0)  # due after 2 s
    own = ticket(number=2.0, arrival=0.0, deadline=1.0)
    high = ticket(number=1.0, arrival=1.0)  # 0.5 s
    line = pushed(policy.line(2), [normal, own, high])
    assert served(policy, line) == [own, high, normal]


# SlideBatching's boundary.


def test_under_overload_the_most_worth_per_second_goes_first() -> None:
    policy = make_order("slide")
    long_ = [ticket(number=1.0, tokens=4_000, arrival=0.0) for _ in range(5)]
    short = [ticket(number=1.0, tokens=200, arrival=0.001) for _ in range(5)]
    low = ticket(number=3.0, tokens=200, arrival=0.0, deadline=0.3)
    line = pushed(policy.line(2), [*long_, low, *short])
    assert line.rank(0.01)[0] == 0.0
    assert served(policy, line, 0.01) == [*short, low, *long_]


def test_when_the_load_is_gone_deadlines_count_again() -> None:
    policy = make_order("slide")
    line = policy.line(2)
    many = [ticket(number=1.0, tokens=4_000, arrival=0.0) for _ in range(5)]
    worth = ticket(number=1.0, tokens=10, arrival=0.0, deadline=0.5)
    soon = ticket(number=1.0, tokens=1000, arrival=0.0, deadline=0.45)
    pushed(line, [*many, soon, worth])
    assert line.first(0.0) is worth
    for each in many:
        line.drop(each)
    assert line.first(0.0) is soon


def test_near_deadlines_and_worth_count_as_equal_where_the_prefix_decides() -> None:
    for name in ("edf", "slide"):
        policy = make_order(name)
        near = [ticket(number=2.0, arrival=at, ttft_slo_s=4.0) for at in (0.0, 0.5, 1.0)]
        far = ticket(number=2.0, arrival=1.1, ttft_slo_s=4.0)  # beyond a quarter of four seconds
        line = pushed(policy.line(2), [*near, far])
        assert line.band(64, 0.0) == near
        assert line.within(near[2], 0.0) and not line.within(far, 0.0)
