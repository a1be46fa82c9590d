"""One order over several routers: what waits elsewhere, and what an account was charged there."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from policies.queueing.accounts import Account, Accounts
from policies.queueing.shared import SharedByFlow
from router.admission.pools import Pools
from router.core.urgency import HIGH, NORMAL
from router.share import messages
from router.share.messages import (
    LOST_S,
    VERSION,
    Charge,
    Message,
    Queues,
    Waits,
    decoded,
    encoded,
)
from router.share.order import MOST_CHARGES, OthersOrder, OwnOrder
from router.share.own import WHOLE_S, Own
from tests.admission.world import Spot, Stand, config
from tests.examples import examples
from tests.share.limits_helpers import unlimited, without_replicas
from tests.tickets import make_ticket


class Side:
    """One router: its queues, what it tells and what it was told."""

    def __init__(self, name: str, policy: str = "fair") -> None:
        self.now = 100.0
        self.spot = Spot("r0", slots=1)
        self.spot.limit = 0  # nothing is sent, so everything waits
        self.pools = Pools(config(policy=policy), Stand([self.spot]))
        self.pools.regroup({self.spot: ["m", "n"]}, self.now)
        self.queue = self.pools.queues[0]
        self.queue.freed(self.spot, self.now)
        self.own = Own(name, unlimited(), OwnOrder(self.pools))
        self.others = without_replicas(name, order=OthersOrder(self.pools, 0.06))
        self.tell()  # enables the journals

    def tell(self) -> Message | None:
        message = self.own.tell({}, self.now)
        return None if message is None else decoded(encoded(message))

    def hear(self, message: Message | None) -> None:
        assert message is not None
        self.others.hear(message, self.now)

    def come(self, number: float = 2.0, **facts: Any) -> Any:
        ticket = make_ticket(number=number, arrival=self.now, model="m", **facts)
        self.pools.offer(ticket, self.now)
        return ticket

    def book(self, urgency: int = NORMAL) -> Accounts:
        order = self.queue.rules.order
        assert isinstance(order, SharedByFlow)
        return order.books[urgency].keys

    def counter(self, name: str) -> float:
        return self.book().of(name, 1.0).counter

    def serve(self, name: str, amount: float, weight: float = 1.0) -> None:
        self.book().correct(name, weight, amount)


def test_what_waits_is_told_until_it_leaves() -> None:
    one, other = Side("a"), Side("b")
    ticket = one.come(number=float(HIGH), key="k", weight=2.0)
    one.now += 0.5
    message = one.tell()
    assert message is not None
    assert message.queues.waits == (Waits("m", HIGH, 500, (("k", 2.0),)),)
    other.hear(message)
    assert other.pools.elsewhere.waits
    assert not other.queue.is_passable
    assert other.book(HIGH).least_elsewhere() == 0.0
    assert one.tell() is None  # its age alone is no news
    ticket.queue.leave(ticket)
    other.hear(one.tell())
    assert not other.pools.elsewhere.waits
    assert other.queue.is_passable
    assert other.book(HIGH).least_elsewhere() == float("inf")


def test_a_router_that_is_lost_has_nothing_waiting_and_keeps_its_charges() -> None:
    one, other = Side("a"), Side("b")
    one.come(key="k")
    one.serve("k", 70.0)
    other.hear(one.tell())
    before = other.counter("k")
    other.others.expire(other.now + LOST_S + 0.1)
    assert not other.pools.elsewhere.waits
    assert other.book().least_elsewhere() == float("inf")
    assert other.counter("k") == before


def test_the_oldest_request_of_several_routers_counts() -> None:
    side = Side("a")

    def hear(router: str, number: int, *rows: Waits) -> list[float]:
        side.hear(Message(VERSION, router, number, (), False, (), Queues(rows)))
        return side.pools.elsewhere.since.get("m", [])

    inf = float("inf")
    assert hear("b", 1, Waits("m", HIGH, 500, ())) == [inf, 99.5, inf, inf, inf]
    assert hear("c", 1, Waits("m", HIGH, 2000, ())) == [inf, 98.0, inf, inf, inf]
    assert hear("c", 2, Waits("m", NORMAL, 0, ())) == [inf, 99.5, 100.0, inf, inf]
    assert hear("b", 2) == [inf, inf, 100.0, inf, inf]
    twice = Waits("m", HIGH, 0, ()), Waits("m", HIGH, 500, ())  # no router tells this
    assert hear("b", 3, *twice) == [inf, 99.5, 100.0, inf, inf]
    assert hear("b", 4) == [inf, inf, 100.0, inf, inf]
    side.others.expire(side.now + LOST_S + 0.1)
    assert not side.pools.elsewhere.waits and not side.pools.elsewhere.since


def test_a_router_that_is_heard_again_is_not_charged_for_the_time_between() -> None:
    one, other = Side("a"), Side("b")
    other.hear(Message(VERSION, "a", 1, (), True, ()))
    one.serve("k", 10.0)
    other.hear(one.tell())
    other.others.expire(other.now + LOST_S + 0.1)
    one.serve("k", 100.0)
    one.now += WHOLE_S
    other.hear(one.tell())
    assert other.counter("k") == 10.0
    one.serve("k", 5.0)
    other.hear(one.tell())
    assert other.counter("k") == 15.0


def test_a_charge_counts_in_all_routers_once() -> None:
    one, other = Side("a"), Side("b")
    other.hear(Message(VERSION, "a", 1, (), True, ()))  # known since before
    one.serve("k", 100.0, 4.0)
    told = one.tell()
    other.hear(told)
    assert other.counter("k") == 25.0
    other.hear(told)
    one.now += WHOLE_S
    other.hear(one.tell())
    assert other.counter("k") == 25.0
    assert other.tell() is None  # what was heard is not told
    one.serve("k", -40.0, 4.0)
    other.hear(one.tell())
    assert other.counter("k") == 15.0


def test_what_a_new_router_has_counted_before_is_past() -> None:
    one, other = Side("a"), Side("b")
    one.serve("k", 100.0)
    other.hear(one.tell())
    assert other.counter("k") == 0.0
    one.serve("k", 5.0)
    other.hear(one.tell())
    assert other.counter("k") == 5.0


def test_what_a_new_router_has_counted_before_is_past_also_if_a_later_message_tells_it() -> None:
    one, other = Side("a"), Side("b")
    one.serve("k", 1000.0)
    one.serve("u", 1.0)
    one.now += WHOLE_S
    one.tell()  # not heard
    one.serve("u", 1.0)
    other.hear(one.tell())  # only the change of `u`
    one.serve("u", 2.0)
    one.now += WHOLE_S
    other.hear(one.tell())  # all
    assert (other.counter("k"), other.counter("u")) == (0.0, 2.0)
    one.serve("k", 5.0)
    one.serve("v", 3.0)
    other.hear(one.tell())
    assert (other.counter("k"), other.counter("v")) == (5.0, 3.0)


def test_an_account_that_the_sender_had_forgotten_begins_again() -> None:
    one, other = Side("a"), Side("b")
    other.hear(Message(VERSION, "a", 1, (), True, ()))
    one.serve("k", 100.0)
    other.hear(one.tell())
    for number in range(MOST_CHARGES):
        one.serve(f"u{number}", 1.0)
    other.hear(one.tell())
    one.serve("k", 3.0)
    other.hear(one.tell())
    assert other.counter("k") == 103.0


@examples(200)
@given(
    st.lists(
        st.tuples(st.sampled_from(["x", "y"]), st.integers(-50, 200), st.booleans()), max_size=30
    )
)
def test_lost_messages_heal(steps: list[tuple[str, int, bool]]) -> None:
    one, other = Side("a"), Side("b")
    other.hear(Message(VERSION, "a", 1, (), True, ()))
    # The account that waits is charged as any other, and its counter may fall.
    one.come(key="x")
    one.come(key="y")
    for name, amount, arrives in steps:
        one.serve(name, float(amount))
        message = one.tell()
        if message is not None and arrives:
            other.hear(message)
    one.now += WHOLE_S
    other.hear(one.tell())
    for name in ("x", "y"):
        own, told = one.book().by_name[name], other.book().by_name[name]
        assert told.counter == pytest.approx(own.counter)
        assert told.waiting == 1


def test_a_message_is_bounded_whatever_waits() -> None:
    one = Side("a")
    one.spot.limit = 0
    for number in range(600):
        name = f"{number:03}" + "m" * 250
        ticket = make_ticket(number=2.0, arrival=one.now, model=name, key=name)
        one.pools.offer(ticket, one.now)
    message = one.own.tell({}, one.now)
    assert message is not None and 0 < len(message.queues.waits) < 600
    assert len(encoded(message)) < messages.MOST_BYTES // 2


def passes(side: Side) -> list[float]:
    return list(side.queue.stride.passes)


def test_what_a_class_was_served_counts_in_all_routers_once() -> None:
    one, other = Side("a"), Side("b")
    one.queue.stride.serves(HIGH, 800.0, 1.0)
    one.now += WHOLE_S
    other.hear(one.tell())
    assert passes(other)[HIGH] == 0.0  # what a new router has served before is past
    before = passes(one)[HIGH]
    one.queue.stride.serves(HIGH, 400.0, 1.0)
    for _ in range(2):
        one.now += WHOLE_S
        other.hear(one.tell())
        assert passes(other)[HIGH] == passes(one)[HIGH] - before > 0.0


def test_a_class_that_waits_elsewhere_gains_no_turns_and_loses_none() -> None:
    one, other = Side("a"), Side("b")
    other.come(number=float(NORMAL))
    other.queue.stride.serves(NORMAL, 5000.0, 2.0)
    one.come(number=float(HIGH))
    other.hear(one.tell())
    begun = passes(other)[HIGH]
    other.queue.stride.serves(NORMAL, 100.0, 2.0)
    assert begun == passes(other)[HIGH] < passes(other)[NORMAL]


def test_the_highest_headroom_applies_everywhere() -> None:
    one, other = Side("a"), Side("b")
    one.now += WHOLE_S
    one.queue.headroom.answered(0.0, 0.0, 1.0, one.now, is_behind_batch=False)  # it begins to fall
    one.queue.headroom.own = 0.5
    other.queue.headroom.own = 0.2
    other.hear(one.tell())
    assert other.queue.headroom.level == 0.5
    other.queue.headroom.own = 0.7
    assert other.queue.headroom.level == 0.7
    other.queue.headroom.own = 0.0
    other.others.expire(other.now + LOST_S + 0.1)
    assert other.queue.headroom.level == 0.0


def test_the_headroom_of_a_router_without_requests_falls() -> None:
    one = Side("a")
    one.queue.headroom.own = 0.8
    one.now += 3600.0
    message = one.tell()
    assert message is not None and message.queues.levels == ()


def test_accounts_mean_nothing_to_an_order_without_them() -> None:
    one, other = Side("a"), Side("b", "fifo")
    one.come(key="k")
    one.serve("k", 5.0)
    other.hear(one.tell())
    assert other.pools.elsewhere.waits
    back = Side("c")
    other.come(key="k")
    back.hear(other.tell())
    assert back.pools.elsewhere.waits and back.book().least_elsewhere() == float("inf")


ROW = Waits("m", 2, 7, (("k", 1.0),))
CHARGE = Charge("m", 2, "k", 1.0, 1, 5.0)


@pytest.mark.parametrize(
    ("field", "row"),
    [
        ("waits", Waits("m", 5, 7, ())),
        ("waits", Waits("m", -1, 7, ())),
        ("waits", Waits("m", 2, -1, ())),
        ("waits", Waits("m", 2, messages.MOST_AGE_MS + 1, ())),
        ("waits", Waits("m" * 300, 2, 7, ())),
        ("waits", Waits("m", 2, 7, (("k", 0.0),))),
        ("waits", Waits("m", 2, 7, (("k", float("nan")),))),
        ("waits", Waits("m", 2, 7, (("k" * 300, 1.0),))),
        ("waits", Waits("m", 2, 7, tuple((f"k{n}", 1.0) for n in range(33)))),
        ("charges", Charge("m", 5, "k", 1.0, 1, 5.0)),
        ("charges", Charge("m", 2, "k", -1.0, 1, 5.0)),
        ("charges", Charge("m", 2, "k", 1.0, 1, float("inf"))),
        ("charges", Charge("m", 2, "k", 1.0, 1, float("nan"))),
        ("charges", Charge("m", 2, "k" * 300, 1.0, 1, 5.0)),
        ("served", ("m", (0.0, 1.0, 2.0, 3.0, -1.0))),
        ("served", ("m", (0.0, 1.0, 2.0, 3.0, float("nan")))),
        ("served", ("m" * 300, (0.0,) * 5)),
        ("levels", ("m", 1.5)),
        ("levels", ("m", 0.0)),
        ("levels", ("m" * 300, 0.5)),
    ],
)
def test_rows_that_no_router_sends_are_refused(field: str, row: Any) -> None:
    good: dict[str, Any] = {"waits": (ROW,), "charges": (CHARGE,), "levels": (("m", 0.5),)}
    bad = {**good, field: (row,)}
    assert decoded(encoded(Message(VERSION, "a", 1, (), True, (), Queues(**good))))
    assert not decoded(encoded(Message(VERSION, "a", 1, (), True, (), Queues(**bad))))


# -- accounts that wait elsewhere -----------------------------------------------------------------


def waits(accounts: Accounts, name: str) -> Account:
    account = accounts.of(name, 1.0)
    accounts.begins(account)
    return account


def test_an_account_that_waits_elsewhere_loses_nothing() -> None:
    accounts = Accounts()
    here, away = waits(accounts, "here"), accounts.begins_elsewhere("away", 1.0)
    here.add(100.0)
    accounts.reaches(100.0)
    assert accounts.time == 0.0  # the virtual time is the lowest counter of all waiting accounts
    assert accounts.of("away", 1.0).counter == 0.0
    accounts.charged_elsewhere("away", 1.0, 40.0)
    accounts.reaches(100.0)
    assert accounts.time == away.counter == 40.0


def test_an_account_that_begins_here_later_has_no_credit() -> None:
    accounts = Accounts()
    accounts.begins_elsewhere("away", 1.0)
    accounts.charged_elsewhere("away", 1.0, 500.0)
    assert waits(accounts, "late").counter == 500.0


@examples(200)
@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(-1, 1), st.integers(-9, 9))))
def test_the_lowest_counter_elsewhere(steps: list[tuple[str, int, int]]) -> None:
    accounts = Accounts()
    away: list[Account] = []
    for name, step, amount in steps:
        if step > 0:
            away.append(accounts.begins_elsewhere(name, 1.0))
        elif step < 0 and away:
            accounts.ends_elsewhere(away.pop())
        accounts.correct(name, 1.0, float(amount))
        least = min((account.counter for account in away), default=float("inf"))
        assert accounts.least_elsewhere() == least


def test_an_account_may_wait_at_several_routers() -> None:
    accounts = Accounts()
    one, two = (accounts.begins_elsewhere("away", 1.0) for _ in range(2))
    assert one is two
    accounts.ends_elsewhere(one)
    assert accounts.least_elsewhere() == 0.0
    accounts.ends_elsewhere(two)
    assert accounts.least_elsewhere() == float("inf")
    assert one.waiting == 0
