"""The order among flows: a burst of one flow does not delay another's single request."""

from collections import Counter
from random import Random

import pytest

from policies.queueing.accounts import IDLE_KEPT
from policies.queueing.contract import make_order, order_names
from policies.queueing.ticket import Ticket
from router.admission.runs import MOST_PREDICTED
from router.config.model import Config
from tests.admission.world import Spot, World, config
from tests.share.routers import Deal, over, world
from tests.tickets import make_ticket

FAIR = [name for name in order_names() if make_order(name).is_fair]
PATIENT = {
    "classes": {"normal": {"wait_s": 1e4, "starvation_s": 1e4, "depth": 100_000}},
    "limits": {"flow": 100_000},
}
NARROW = {"gates": {"prefill_tokens": 0}}


def by_account(ticket: Ticket) -> int:
    """All requests of an account come to one router; those of ten tenants to all routers."""
    return sum(ticket.flow.account.encode())


@over
@pytest.mark.parametrize("name", FAIR)
@pytest.mark.parametrize("key", ["single", "burst"])
def test_one_request_waits_at_most_a_service_turn_behind_ten_thousand(
    name: str, key: str, routers: int
) -> None:
    """The single request has another key, or the same key and another user.

    With several routers, the users of one key share only within a router, and each of the two
    others may use one slot first.
    """
    ours = world(routers, [Spot("a", slots=4)], config(policy=name, **PATIENT, **NARROW))
    for _ in range(10_000 if routers == 1 else 1000):
        ours.come(key="burst", tokens=2000, output=20)
    ours.run(20.0)
    before = len(ours.order)
    single = ours.come(key=key, user="single", tokens=2000, output=20)
    ours.run(20.0)
    # A turn is one request; dlpm and drr give a flow a whole quantum.
    turn = {"drr": 3, "dlpm": 17}.get(name, 1)
    assert ours.order.index(single) - before <= turn + routers - 1


def test_requests_for_many_long_answers_delay_no_other_account_for_long() -> None:
    """Two requests of one account are charged a huge prediction and have short answers. While both
    run, the virtual time rises by the charge of the first one, and stays there."""
    world = World([Spot("a", slots=2, limit=2)], config(policy="fair", **PATIENT, **NARROW))
    for _ in range(60):
        world.come(key="greedy", tokens=10_000, output=10)
    for _ in range(2):
        ticket = make_ticket(key="greedy", number=1.6, output_limit=2**31 - 1, arrival=world.now)
        ticket.view.choices = 1024
        world.offer(ticket)
        world.truth[ticket] = 30
    world.run(4.0)
    before = len(world.order)
    assert len(world.done) >= 4
    other = world.come(key="other", tokens=10, output=10)
    world.run(100.0)
    # Each request of the greedy account is charged 10,020 tokens.
    turns = world.order.index(other) - before
    assert 5 < turns <= 2 * MOST_PREDICTED / 10_020 + 2


def jain(served: list[float]) -> float:
    """Jain's fairness index: 1 if all have the same, 1/n if one has all."""
    return sum(served) ** 2 / (len(served) * sum(each * each for each in served))


@over
@pytest.mark.parametrize("name", ["fair", "drr", "dlpm"])
def test_ten_tenants_that_always_wait_share_the_tokens(name: str, routers: int) -> None:
    """The shares are equal for different request sizes and numbers of waiting requests, and if all
    requests of a tenant come to one router."""
    options = {"fair": {"width": 2048.0}, "drr": {}, "dlpm": {"quantum": 8192.0}}[name]
    ours = world(
        routers,
        [Spot("a", slots=8), Spot("b", slots=8)],
        config(policy=name, options=options, **PATIENT, **NARROW),
        by_account,
    )
    rng = Random(4)
    for tenant in range(10):
        mean = 200 * (tenant + 1)
        # Enough requests of each for the measured time; every second tenant has three times as
        # many.
        for _ in range(1000 // (tenant + 1) * (3 if tenant % 2 else 1)):
            ours.come(key=f"k{tenant}", tokens=rng.randrange(1, 2 * mean), output=10)
    ours.run(60.0 / routers)
    served: Counter[str] = Counter()
    for ticket in ours.order:
        served[ticket.flow.account] += ticket.view.prompt_tokens + (2 * 10 if name != "drr" else 0)
    assert len(served) == 10
    assert {ticket.flow.account for ticket in ours.waiting()} == served.keys()
    assert jain([float(each) for each in served.values()]) >= 0.95


@pytest.mark.parametrize(
    ("routers", "deal", "least"), [(1, None, 0.98), (3, None, 0.95), (3, by_account, 0.75)]
)
def test_tenants_of_batch_share_its_turns_while_every_class_waits(
    routers: int, deal: Deal | None, least: float
) -> None:
    """With default settings. The first tenant has three times as many requests as each other.

    With several routers, the tenants may differ by the `width` of the policy: seven requests.
    """
    ours = world(routers, [Spot("a", slots=8), Spot("b", slots=8)], Config(), deal)
    for _ in range(1200):
        ours.come(number=1.0, key="urgent", tokens=1000, output=50)
        ours.come(number=2.0, key="normal", tokens=1000, output=50)
    for number in range(600):
        ours.come(number=4.0, key=f"k{max(0, number % 6 - 2)}", tokens=1000, output=50)
    ours.run(60.0)
    assert all(ours.depth[urgency] for urgency in (1, 2, 4))
    served = Counter(ticket.flow.account for ticket in ours.order if ticket.urgency == 4)
    assert len(served) == 4
    assert jain([float(count) for count in served.values()]) >= least
    share = served.total() / len(ours.order)
    assert share == pytest.approx(1 / (1 + 4 + 8), abs=0.03)


@over
def test_the_bound_of_vtc_holds_while_many_run_and_predictions_are_wrong(routers: int) -> None:
    """The service of two flows that always wait differs by at most VTC's bound at every moment.

    The bound is 2 * max(w_p * L_input, w_q * M), M being the tokens in parallel. Predicted charges
    are corrected at the end, also when a client leaves.
    """
    rng = Random(8)
    longest, talk = 3000, 600
    spots = [Spot("a", slots=4), Spot("b", slots=4)]
    ours = world(routers, spots, config(options={"width": 0.0}, **PATIENT, **NARROW))
    for number in range(5 * 300):
        key = number % 5
        ticket = ours.come(key=f"k{key}", tokens=rng.randrange(1, longest))
        ours.truth[ticket] = rng.randrange(1, talk if key % 2 else 60)
    at_once = 2 * (4 + 3)
    bound = 2 * max(longest, 2 * at_once * talk)
    served: Counter[str] = Counter()
    for _ in range(300):
        ours.run(0.25)
        if rng.random() < 0.2 and ours.jobs:
            ticket = rng.choice(list(ours.jobs))
            ours.truth[ticket] = 0
            ours.leave(ticket)
        served.clear()
        for ticket in ours.order:
            served[ticket.flow.account] += ticket.view.prompt_tokens + 2 * ours.truth[ticket]
        if len(served) == 5:
            assert max(served.values()) - min(served.values()) <= bound
    assert len({ticket.flow.account for ticket in ours.waiting()}) == 5
    assert min(served.values()) > 3 * bound


def test_ten_thousand_flows_leak_no_memory() -> None:
    world = World([Spot("a", tpot_s=0.001)], config(**PATIENT))
    rng = Random(2)
    leaving: list[Ticket] = []
    for number in range(10_000):
        ticket = world.come(key=f"k{number}", user=f"u{number}", tokens=100, output=5)
        if rng.random() < 0.3:
            leaving.append(ticket)
        if len(leaving) > 20:
            world.leave(leaving.pop(0))
        world.run(0.005)
    for ticket in leaving:
        world.leave(ticket)
    world.run(200.0)
    world.assert_empty()
    assert len(world.queue.runs.outputs) <= 4096
    assert len(world.queue.wait_lists._deadlines) == 0
    order = world.queue.rules.order
    assert sum(len(book.keys) for book in getattr(order, "books", [])) <= IDLE_KEPT


@pytest.mark.parametrize("name", order_names())
def test_the_queue_says_whether_its_order_shares_by_flow(name: str) -> None:
    assert World([], config(policy=name)).queue.is_fair is (name in FAIR)
