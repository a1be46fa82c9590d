"""The victim in a full queue: the largest holder's newest request, never a small newcomer's."""

from random import Random

from policies.queueing.ticket import ENDED, WAITING, Ticket
from router.admission.waiting.holders import Holders
from router.core.errors import Reason
from tests.tickets import make_ticket

DEPTH = 200
LIMIT = 1 << 20
FULL = Reason.QUEUE_FULL
BYTES = Reason.QUEUE_BYTES_FULL


class World:
    """Waiting tickets in the bookkeeping of a queue, without the queue."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.holders = Holders(limit)
        self.waiting: list[Ticket] = []
        self.orders = 0

    def ticket(self, key: str, user: str = "", *, known: bool = False, size: int = 0) -> Ticket:
        self.orders += 1
        ticket = make_ticket(key=key, user=user, is_known=known, body_bytes=size)
        ticket.order = self.orders
        return ticket

    def wait(self, *args: str, count: int = 1, known: bool = False, size: int = 0) -> Ticket:
        for _ in range(count):
            ticket = self.ticket(*args, known=known, size=size)
            ticket.state = WAITING
            self.holders.enter(ticket)
            self.waiting.append(ticket)
        return ticket

    def leave(self, ticket: Ticket) -> None:
        ticket.state = ENDED
        self.waiting.remove(ticket)
        self.holders.left(ticket)

    def victim(
        self, *args: str, known: bool = False, size: int = 0, reason: Reason = FULL
    ) -> Ticket | None:
        newcomer = self.ticket(*args, known=known, size=size)
        self.holders.join(newcomer)
        return self.holders.victim(newcomer, reason, DEPTH)


def test_the_newest_request_of_the_largest_flow_is_evicted() -> None:
    world = World()
    world.wait("a", count=80)
    last = world.wait("b", count=100)
    world.wait("c", count=20)
    assert world.victim("d") is last
    assert world.victim("c") is last
    assert world.victim("b") is None, "it is the largest itself"


def test_within_the_largest_account_the_largest_member_is_evicted() -> None:
    world = World()
    greedy = world.wait("address", "greedy", count=150)
    world.wait("address", "modest", count=50)
    assert world.victim("address", "third") is greedy
    assert world.victim("address", "modest") is greedy
    assert world.victim("address", "greedy") is None
    assert world.victim("other") is greedy


def test_invented_members_are_one_account() -> None:
    world = World()
    for n in range(DEPTH):
        last = world.wait("address", f"invented {n}")
    assert world.victim("address", "invented again") is None
    assert world.victim("other") is last


def test_unknown_clients_are_evicted_before_known_ones() -> None:
    world = World()
    world.wait("key", known=True, count=150)
    last = [world.wait(f"unknown {n}") for n in range(50)][-1]
    assert world.victim("other key", known=True) is last
    assert world.victim("key", known=True) is last
    assert world.victim("unknown again") is None, "as large as any other unknown one"


def test_a_tenth_is_kept_for_unknown_clients() -> None:
    world = World()
    world.wait("small", count=5)
    last = world.wait("key", known=True, count=195)
    assert world.victim("key", known=True) is None
    assert world.victim("other key", known=True) is last
    assert world.victim("unknown") is last


def test_a_request_with_an_early_status_is_not_evicted() -> None:
    world = World()
    tickets = [world.wait("a") for _ in range(150)]
    world.wait("b", count=50)
    committed = [t for t in reversed(tickets) if world.holders.allows_early_status(t, DEPTH)]
    assert len(committed) == DEPTH // 2, "half of the class at most"
    victim = world.victim("c")
    assert victim is tickets[49]
    for ticket in tickets[:50]:
        world.leave(ticket)
    assert world.victim("a") is None, "it holds the most, though none of it gives way"
    other = world.victim("c")
    assert other is not None and other.flow.account == "b"


def test_the_flow_with_the_most_bytes_is_evicted() -> None:
    world = World()
    world.wait("many", count=100, size=100)
    large = world.wait("large", size=LIMIT // 2)
    assert world.victim("small", size=1000, reason=BYTES) is large
    assert world.victim("large", size=1000, reason=BYTES) is None
    assert world.victim("larger", size=LIMIT, reason=BYTES) is None
    assert world.holders.frees_enough(large, 1000, 64)
    assert not world.holders.frees_enough(large, LIMIT, 64)


def test_another_limit_is_adopted_with_what_waits() -> None:
    world = World()
    world.wait("a", size=5000)
    world.wait("b", size=6000)
    world.holders.adopt(10_000)
    victim = world.victim("c", size=1, reason=BYTES)
    assert victim is not None and victim.flow.account == "b"


def test_the_counts_equal_those_of_a_full_search() -> None:
    rng = Random(1)
    world = World()
    for _ in range(5000):
        if world.waiting and rng.random() < 0.48:
            world.leave(rng.choice(world.waiting))
        elif world.waiting and rng.random() < 0.1:
            world.holders.allows_early_status(rng.choice(world.waiting), 1 << 20)
        else:
            world.wait(f"k{rng.randrange(6)}", f"u{rng.randrange(3)}", size=rng.randrange(50))
        sizes: dict[str, int] = {}
        fresh: dict[str, int] = {}
        for ticket in world.waiting:
            sizes[ticket.flow.account] = sizes.get(ticket.flow.account, 0) + 1
            fresh[ticket.flow.account] = fresh.get(ticket.flow.account, 0) + (
                not ticket.has_early_status
            )
        can = {key: n for key, n in sizes.items() if fresh[key]}
        victim = world.victim("newcomer")
        if not can or max(can.values()) <= 1:
            assert victim is None
            continue
        assert victim is not None and can[victim.flow.account] == max(can.values())
        of_member = [
            t
            for t in world.waiting
            if (t.flow.account, t.flow.member) == (victim.flow.account, victim.flow.member)
        ]
        assert victim is max(
            (t for t in of_member if not t.has_early_status), key=lambda t: t.order
        )
    for ticket in list(world.waiting):
        world.leave(ticket)
    assert world.holders.by_flow() == {}


def test_removed_flows_use_no_memory() -> None:
    world = World()
    for n in range(5000):
        world.leave(world.wait(f"k{n}"))
    held = world.holders
    assert len(held._known.by_name) + len(held._unknown.by_name) <= 256
    assert held._parties <= 256
