"""A third party's order policy: plain Python, registered by name, used like other policies."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import pytest

from policies.queueing.contract import QUEUEING, OrderPolicy, TicketQueue, make_order, order_policy
from policies.queueing.ticket import Ticket
from tests.addons.needed import needs
from tests.admission.world import Spot, World, config
from tests.tickets import make_ticket


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Registrations of a test are removed after it."""
    QUEUEING.names()
    monkeypatch.setattr(QUEUEING, "classes", dict(QUEUEING.classes))
    yield


class LatestFirst:
    """An order policy that serves the newest ticket first."""

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []

    def push(self, ticket: Ticket, now: float) -> None:
        self.tickets.append(ticket)
        self.tickets.sort(key=lambda each: -each.order)

    def drop(self, ticket: Ticket) -> None:
        self.tickets.remove(ticket)

    def first(self, now: float) -> Ticket | None:
        return self.tickets[0] if self.tickets else None

    def rank(self, now: float) -> tuple[float, ...]:
        return (-float(self.tickets[0].order),)

    def band(self, most: int, now: float) -> list[Ticket]:
        return self.tickets[:most]

    def within(self, ticket: Ticket, now: float) -> bool:
        return True

    def take(self, ticket: Ticket, now: float) -> None:
        self.tickets.remove(ticket)


def test_the_queue_uses_a_third_party_policy() -> None:
    @order_policy("latest")
    @dataclass(slots=True)
    class Latest(OrderPolicy):
        by_class: ClassVar[bool] = False

        def line(self, urgency: int) -> TicketQueue:
            return LatestFirst()

    assert isinstance(make_order("latest"), Latest)
    world = World([Spot("a")], config(policy="latest", gates={"prefill_tokens": 0}))
    tickets = [world.come(tokens=1000, output=10) for _ in range(10)]
    world.run(20.0)
    assert world.order == tickets[:3] + tickets[:2:-1]
    world.assert_empty()


class Fails:
    """A policy that raises, or returns invalid values, from one of its calls on."""

    def __init__(self, inner: LatestFirst, what: str, after: int, nonsense: object) -> None:
        self.inner = inner
        self.what = what
        self.after = after
        self.nonsense = nonsense

    def __getattr__(self, name: str) -> Any:
        if name == self.what:
            self.after -= 1
            if self.after < 0:
                if self.nonsense is None:
                    raise RuntimeError("a policy with a bug")
                return lambda *_: self.nonsense
        return getattr(self.inner, name)


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize(
    ("what", "nonsense"),
    [
        ("push", None),
        ("drop", None),
        ("first", None),
        ("rank", None),
        ("band", None),
        ("within", None),
        ("take", None),
        ("first", make_ticket()),
        ("first", "nobody"),
        ("rank", ("a", "b")),
        ("band", [make_ticket()]),
    ],
)
def test_a_third_party_line_fails(what: str, nonsense: object, after: int) -> None:
    """After the failure its tickets are served by arrival: each is sent, leaves or expires."""

    @order_policy("latest")
    @dataclass(slots=True)
    class Latest(OrderPolicy):
        by_class: ClassVar[bool] = False

        def line(self, urgency: int) -> TicketQueue:
            return cast(TicketQueue, Fails(LatestFirst(), what, after, nonsense))

    spots = [Spot("a"), Spot("b")]
    held = {spots[1]: 3}
    world = World(spots, config(policy="latest", gates={"prefill_tokens": 0}))
    for number in range(40):
        look = (lambda: held) if number % 3 else None
        world.come(tokens=1000, output=10, number=float(number % 5), look=look, block_tokens=100.0)
    for ticket in world.queue.wait_lists.tickets()[::4]:
        world.leave(ticket)
    world.run(60.0)
    world.assert_empty(fails=True)


@needs("preemption")
@pytest.mark.parametrize("what", ["line", "passed", "settled", "refunded", "sized"])
def test_a_third_party_policy_fails(what: str) -> None:
    def fails(*_: object) -> Any:
        raise RuntimeError("a policy with a bug")

    order = dataclass(slots=True)(
        type("Latest", (OrderPolicy,), {"line": lambda *_: LatestFirst(), what: fails})
    )
    order_policy("latest")(order)
    rules = config(
        policy="latest",
        gates={"prefill_tokens": 0},
        preemption={"enabled": True, "after_s": 0.1, "budget": 1.0},
    )
    world = World([Spot("a", slots=2)], rules)
    for number in range(20):
        world.come(tokens=1000, output=100, number=4.0 - number % 5)
    world.run(60.0)
    world.assert_empty(fails=True)


def test_two_orders_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="fifo"):
        order_policy("fifo")(OrderPolicy)
