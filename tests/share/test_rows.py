"""Routers that tell each other of their load: sums are right, whatever gets lost or comes late."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, strategies as st

from router.core.build import is_compiled
from router.core.lease import Lease, others_counted, poll_begins, poll_counted, signals_lost
from router.core.replica_load import ReplicaLoad
from router.fleet.replica import Replica
from router.share import messages
from router.share.heard import Router
from router.share.messages import LOST_S, VERSION, Message, Placement, Row, decoded, encoded
from router.share.others import KEPT_S, Others
from router.share.own import AGAIN_BLOCKS, MOST_TOLD, WHOLE_S, Own
from tests.fleet.helpers import Table
from tests.share.limits_helpers import unlimited

NAMES = ("r0", "r1")
BLOCKS = (11, 12, 13)


class Side:
    """One router: its fleet, what it tells and what it was told."""

    def __init__(self, name: str) -> None:
        self.now = 100.0
        self.table = table = Table()
        table.clock = lambda: self.now
        self.fleet = table.fleet
        for each in NAMES:
            table.add(each)
        self.limits = unlimited()
        self.own, self.others = Own(name, self.limits), Others(name, self.fleet, self.limits)
        self.fleet.knowledge.tell = self.own.placed
        self.room: list[Replica | None] = []
        self.fleet.hooks.room = self.room.append

    def __getitem__(self, name: str) -> Replica:
        return self.fleet.replicas[name]

    def tell(self) -> Message | None:
        return self.own.tell(self.fleet.replicas, self.now)

    def loads(self) -> list[tuple[int, int, int]]:
        return [
            (place.load, place.waiting, place.pending_tokens)
            for place in self.fleet.replicas.values()
        ]


def through_the_wire(message: Message | None) -> Message:
    assert message is not None
    found = decoded(encoded(message))
    assert found == message
    return message


def test_one_router_sees_the_load_of_the_other() -> None:
    one, other = Side("a"), Side("b")
    lease = Lease(one["r0"], tokens=300)
    Lease(one["r0"], tokens=200).begun()
    other.others.hear(through_the_wire(one.tell()), other.now)
    assert other.loads() == [(2, 1, 300), (0, 0, 0)]
    assert other["r0"].inflight == 0
    assert other["r0"].foreign_load == 2
    lease.begun()
    other.others.hear(through_the_wire(one.tell()), other.now)
    assert other.loads() == [(2, 0, 0), (0, 0, 0)]
    assert other.room == [other["r0"]]


def test_nothing_is_told_twice_and_nothing_heard_is_told() -> None:
    one, other = Side("a"), Side("b")
    Lease(one["r0"], tokens=300)
    first = through_the_wire(one.tell())
    assert first.rows == (Row("r0", 1, 1, 300),)
    assert one.tell() is None
    other.tell()
    other.others.hear(first, other.now)
    assert other.tell() is None


def test_a_prompt_is_found_where_another_router_has_sent_it() -> None:
    one, other = Side("a"), Side("b")
    one.fleet.knowledge.sent(one["r1"], BLOCKS, 0)
    message = through_the_wire(one.tell())
    assert message.placements == (Placement("r1", BLOCKS, 0),)
    other.others.hear(message, other.now)
    assert other.fleet.knowledge.prefixes.match(BLOCKS) == {other["r1"]: 3}


def test_a_silent_router_has_no_load_any_more() -> None:
    one, other = Side("a"), Side("b")
    Lease(one["r0"], tokens=300)
    other.others.hear(through_the_wire(one.tell()), 10.0)
    other.others.expire(10.0 + LOST_S)
    assert other.others.count == 1
    other.others.expire(10.1 + LOST_S)
    assert other.others.count == 0
    assert other.loads() == [(0, 0, 0)] * 2


def test_many_routers_that_fall_silent_are_counted_once() -> None:
    side = Side("a")
    for number in range(50):
        side.others.hear(Message(VERSION, f"b{number}", 1, (Row("r0", 1, 1, 7),), True, ()), 10.0)
    assert side.loads()[0] == (50, 50, 350)
    side.room.clear()
    side.others.expire(10.1 + LOST_S)
    assert side.room == [side["r0"]]
    assert side.loads() == [(0, 0, 0)] * 2


@pytest.mark.parametrize("ahead_s", [-300.0, 300.0])
def test_no_clock_is_compared(ahead_s: float) -> None:
    one, other = Side("a"), Side("b")
    one.now = 1000.0
    other.now = one.now + ahead_s
    lease = Lease(one["r0"], tokens=300)
    one.fleet.knowledge.sent(one["r1"], BLOCKS, 0)
    other.others.hear(through_the_wire(one.tell()), other.now)
    for side in (one, other):
        side.now += LOST_S
        side.others.expire(side.now)
    assert other.loads() == [(1, 1, 300), (0, 0, 0)]
    assert other.fleet.knowledge.prefixes.match(BLOCKS) == {other["r1"]: 3}
    lease.release()
    other.others.hear(through_the_wire(one.tell()), other.now)
    assert other.loads() == [(0, 0, 0)] * 2
    other.now += 0.1 + LOST_S
    other.others.expire(other.now)
    assert other.others.count == 0


def test_a_whole_message_replaces_what_was_lost() -> None:
    one, other = Side("a"), Side("b")
    lease = Lease(one["r0"], tokens=300)
    other.others.hear(through_the_wire(one.tell()), other.now)
    lease.release()
    one.tell()  # lost
    assert other["r0"].load == 1
    one.now += WHOLE_S
    whole = through_the_wire(one.tell())
    assert whole.is_whole and not whole.rows
    other.others.hear(whole, other.now)
    assert other.loads() == [(0, 0, 0)] * 2


def test_a_replica_that_leaves_the_senders_fleet_has_no_load_of_it() -> None:
    one, other = Side("a"), Side("b")
    Lease(one["r0"], tokens=300)
    other.others.hear(through_the_wire(one.tell()), other.now)
    one.fleet.remove("r0")
    other.others.hear(through_the_wire(one.tell()), other.now)
    assert other.loads() == [(0, 0, 0)] * 2


def test_own_messages_that_come_back_are_ignored() -> None:
    side = Side("a")
    Lease(side["r0"], tokens=300)
    side.others.hear(through_the_wire(side.tell()), side.now)
    assert side.others.count == 0
    assert side.loads() == [(1, 1, 300), (0, 0, 0)]


def test_a_late_message_changes_no_row() -> None:
    one, other = Side("a"), Side("b")
    lease = Lease(one["r0"], tokens=300)
    early = through_the_wire(one.tell())
    lease.release()
    late = through_the_wire(one.tell())
    other.others.hear(late, other.now)
    other.others.hear(early, other.now)
    assert other.loads() == [(0, 0, 0)] * 2


def test_a_replica_that_is_not_in_the_fleet_is_skipped() -> None:
    side = Side("a")
    rows = (Row("r0", 2, 1, 7), Row("elsewhere", 9, 9, 9))
    placed = (Placement("elsewhere", BLOCKS, 0),)
    side.others.hear(Message(VERSION, "b", 1, rows, True, placed), side.now)
    assert side.loads() == [(2, 1, 7), (0, 0, 0)]


@dataclass
class Net:
    """Two routers, and the messages on their way from one to the other."""

    sides: tuple[Side, Side] = field(default_factory=lambda: (Side("a"), Side("b")))
    way: list[tuple[int, Message]] = field(default_factory=list)
    leases: tuple[list[tuple[str, Lease]], ...] = field(default_factory=lambda: ([], []))


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 1), st.integers(0, 9))))
def test_sums_are_right_after_the_next_whole_message(
    steps: list[tuple[int, int, int]],
) -> None:
    net = Net()
    for kind, who, number in steps:
        side, leases = net.sides[who], net.leases[who]
        name = NAMES[number % 2]
        if kind == 0:
            leases.append((name, Lease(side[name], number * 10, streamed=number % 3 > 0)))
        elif kind == 1 and leases:
            leases[number % len(leases)][1].begun()
        elif kind == 2 and leases:
            leases.pop(number % len(leases))[1].release()
        elif kind == 3 and (message := side.tell()):
            net.way.append((1 - who, through_the_wire(message)))
        elif kind == 4 and net.way:
            to, message = net.way.pop(number % len(net.way))
            net.sides[to].others.hear(message, side.now)
        elif kind == 5 and net.way:
            net.way.pop(number % len(net.way))
        elif kind == 6:
            place = side[name]
            poll_counted(place, poll_begins(place, side.now), number, number // 2, side.now)
        elif kind == 7:
            signals_lost(side[name])
        side.now += 0.3
        for each in net.sides:
            for place in each.fleet.replicas.values():
                assert min(place.load, place.waiting, place.pending_tokens) >= 0
                assert place.load - place.foreign_load == place.inflight
                assert 0 <= place.shared_load <= place.foreign_load
    for side in net.sides:
        side.now += WHOLE_S
        for place in side.fleet.replicas.values():
            signals_lost(place)
    told = [side.tell() for side in net.sides]
    for message, side in zip(told, reversed(net.sides), strict=True):
        assert message is not None and message.is_whole
        side.others.hear(message, side.now)
    for name in NAMES:
        total = sum(side[name].inflight for side in net.sides)
        assert [side[name].load for side in net.sides] == [total, total]
    for leases in net.leases:
        for _, lease in leases:
            lease.release()
    for side in net.sides:
        side.others.expire(side.now + 2 * LOST_S)
        assert side.loads() == [(0, 0, 0)] * 2


def test_a_poll_does_not_count_told_requests_twice() -> None:
    place = ReplicaLoad("r")
    Lease(place).begun()
    others_counted(place, waiting=1, load=3, tokens=50)
    poll_counted(place, poll_begins(place, 0.0), 5, 2, 0.0)
    # Of the seven requests at the engine, one is the router's own, and three were told.
    assert (place.load, place.foreign_load, place.shared_load) == (7, 6, 3)
    assert (place.waiting, place.foreign_waiting) == (2, 2)
    others_counted(place, waiting=0, load=2, tokens=0)
    assert (place.load, place.foreign_load) == (6, 5)
    signals_lost(place)
    assert (place.load, place.waiting, place.pending_tokens) == (3, 0, 0)


TOO_MANY = (Row("r0", 0, 0, 0),) * (messages.MOST_ROWS + 1)
TOO_MANY_PLACED = (Placement("r0", (), 0),) * (messages.MOST_PLACEMENTS + 1)
GOOD = Message(VERSION, "a", 1, (Row("r0", 1, 1, 1),), True, (Placement("r0", BLOCKS, 0),))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        b"\x91" * 10_000,
        encoded(GOOD)[:-1],
        encoded(Message(VERSION + 1, "a", 1, (), True, ())),
        encoded(Message(VERSION, "a", -1, (), True, ())),
        encoded(Message(VERSION, "a", 1, (Row("r0", -1, 0, 0),), True, ())),
        encoded(Message(VERSION, "a", 1, TOO_MANY, True, ())),
        encoded(Message(VERSION, "a", 1, (), True, TOO_MANY_PLACED)),
        encoded(Message(VERSION, "a", 1, (Row("r0", 1, 2, 0),), True, ())),
        encoded(Message(VERSION, "a", 1, (Row("r0", messages.MOST_LOAD + 1, 0, 0),), True, ())),
        encoded(Message(VERSION, "a", 1, (), True, (Placement("r0", BLOCKS, 4),))),
        encoded(Message(VERSION, "a", 1, (), True, (Placement("r0", BLOCKS, -1),))),
        encoded(Message(VERSION, "a", 1, (), True, (Placement("r0", (-1,), 0),))),
        encoded(Message(VERSION, "a", 1, (), True, (Placement("r0", BLOCKS * 8001, 0),))),
        encoded(Message(VERSION, "x" * 1000, 1, (), True, ())),
        encoded(Message(VERSION, "x" * messages.MOST_BYTES, 1, (), True, ())),
    ],
)
def test_what_no_router_sends_is_ignored(data: bytes) -> None:
    assert decoded(data) is None
    assert decoded(encoded(GOOD)) == GOOD


def test_many_and_long_prompts_take_several_messages() -> None:
    one = Side("a")
    chain = tuple(range(10_000))
    for _ in range(5):
        one.fleet.knowledge.sent(one["r0"], chain, 0)
    one.fleet.knowledge.sent(one["r0"], tuple(range(messages.MOST_BLOCKS + 1)), 0)
    told = [len(through_the_wire(one.tell()).placements) for _ in range(3)]
    assert told == [2, 2, 1]
    assert one.tell() is None


def wholes(side: Side, count: int) -> list[Message]:
    """The next whole messages."""
    found = []
    for _ in range(count):
        side.now += WHOLE_S
        found.append(through_the_wire(side.tell()))
    return found


def sent(side: Side, count: int, length: int) -> list[tuple[int, ...]]:
    """The chains of prompts that a router has sent and told."""
    chains = [tuple(range(n << 20, (n << 20) + length)) for n in range(count)]
    for chain in chains:
        side.fleet.knowledge.sent(side["r0"], chain, 0)
        side.tell()
    return chains


def joins(one: Side, late: Side, others: int = 1) -> None:
    def held(name: str, blocks: tuple[int, ...]) -> int:
        return one.fleet.knowledge.prefixes.match(blocks).get(one[name], 0)

    assert one.others.hear(through_the_wire(late.tell()), one.now)
    assert not one.others.hear(wholes(late, 1)[0], one.now)
    one.own.joined(others, held)


def test_a_router_that_joins_is_told_the_latest_placements() -> None:
    one, late = Side("a"), Side("c")
    chains = sent(one, 30, 100)
    joins(one, late)
    told = wholes(one, 3)
    found = [[placed.blocks for placed in message.placements] for message in told]
    assert found == [chains[:20], chains[20:], []]
    for message in told:
        late.others.hear(message, late.now)
    assert late.fleet.knowledge.prefixes.match(chains[0]) == {late["r0"]: 100}


def test_many_routers_tell_a_new_one_no_more_blocks_together() -> None:
    one, late = Side("a"), Side("c")
    chains = sent(one, 600, 100)
    joins(one, late, others=31)
    told = [placed.blocks for message in wholes(one, 3) for placed in message.placements]
    assert told == chains[-7:]
    assert len(told) * 100 == pytest.approx(messages.MOST_BLOCKS / 31, rel=0.1)
    assert 2 * MOST_TOLD <= messages.MOST_PLACEMENTS  # New ones and told ones, in one message.
    assert one.own._latest_blocks <= messages.MOST_BLOCKS


def test_what_a_replica_has_lost_is_not_told_again() -> None:
    one, late = Side("a"), Side("c")
    sent(one, 3, 100)
    one.fleet.knowledge.restarted(one["r0"])
    joins(one, late)
    assert [message.placements for message in wholes(one, 2)] == [(), ()]


def test_the_start_of_a_long_prompt_is_told_again() -> None:
    one, late = Side("a"), Side("c")
    (chain,) = sent(one, 1, AGAIN_BLOCKS + 1)
    joins(one, late)
    assert wholes(one, 1)[0].placements == (Placement("r0", chain[:AGAIN_BLOCKS], 0),)


def test_rows_of_unknown_replicas_take_no_memory() -> None:
    side = Side("a")
    for number in range(100):
        rows = tuple(Row(f"x{number}-{each}", 1, 0, 0) for each in range(100))
        side.others.hear(Message(VERSION, "b", number, rows, False, ()), side.now)
    assert [len(router.rows) for router in side.others._routers.values()] == [0]


class Order:
    """Notes what it hears, instead of the order of the queue."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def hear(self, message: Message, router: Router, now: float) -> None:
        self.calls.append("hear")

    def lost(self, routers: list[Router]) -> None:
        self.calls.append("lost")


@pytest.mark.skipif(is_compiled(), reason="compiled code takes no other order")
def test_the_order_is_known_before_a_changed_load_causes_a_choice() -> None:
    one, other, order = Side("a"), Side("b"), Order()
    other.others = Others("b", other.fleet, other.limits, order)  # type: ignore[arg-type]
    leases = [Lease(one["r0"], tokens=300) for _ in range(2)]
    other.others.hear(through_the_wire(one.tell()), other.now)
    leases[0].release()

    def fails(replica: Replica | None) -> None:
        raise RuntimeError("the queue")

    other.fleet.hooks.room = fails
    with pytest.raises(RuntimeError):
        other.others.hear(through_the_wire(one.tell()), other.now)
    assert order.calls == ["hear", "hear"]
    other.now += 2 * LOST_S
    with pytest.raises(RuntimeError):
        other.others.expire(other.now)
    assert order.calls == ["hear", "hear", "lost"]
    assert other.others.count == 0


def test_of_many_routers_some_use_a_free_slot_at_once() -> None:
    one = Side("a")
    others = [Side(f"b{number}") for number in range(40)]
    for side in others:
        for number in range(31):
            side.others.hear(Message(VERSION, f"c{number}", 1, (), True, ()), side.now)
    lease = Lease(one["r0"], tokens=300)
    taken = through_the_wire(one.tell())
    lease.release()
    free = through_the_wire(one.tell())
    for side in others:
        side.others.hear(taken, side.now)
        side.others.hear(free, side.now)
    acting = [side for side in others if side.room]
    assert 0 < len(acting) < len(others) // 2
    assert all(side.loads()[0] == (0, 0, 0) for side in others)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans(), st.booleans())))
def test_the_sums_are_those_of_the_last_row_of_each_router(
    steps: list[tuple[int, int, bool, bool]],
) -> None:
    side = Side("a")
    rows: list[dict[str, Row]] = [{}, {}, {}]
    for number, (who, load, is_first, is_whole) in enumerate(steps, 1):
        row = Row(NAMES[0 if is_first else 1], load, load // 2, 10 * load)
        rows[who] = {row.replica: row} if is_whole else rows[who] | {row.replica: row}
        side.others.hear(Message(VERSION, f"b{who}", number, (row,), is_whole, ()), side.now)
        for name, (load, waiting, tokens) in zip(NAMES, side.loads(), strict=True):
            told = [each[name] for each in rows if name in each]
            assert load == sum(one.load for one in told)
            assert waiting == sum(one.waiting for one in told)
            assert tokens == sum(one.tokens for one in told)
    side.others.expire(side.now + LOST_S + 0.1)
    assert side.loads() == [(0, 0, 0)] * 2
    assert not side.others._sums


def test_a_replica_that_is_replaced_gets_the_load_of_all_with_the_next_row() -> None:
    side = Side("a")
    for number in range(3):
        side.others.hear(Message(VERSION, f"b{number}", 1, (Row("r0", 2, 1, 7),), True, ()), 10.0)
    side.fleet.remove("r0")
    side.table.add("r0")
    side.others.hear(Message(VERSION, "b0", 2, (Row("r0", 3, 1, 8),), False, ()), 10.0)
    assert (side["r0"].load, side["r0"].waiting, side["r0"].pending_tokens) == (7, 3, 22)


def test_a_router_that_is_heard_again_is_new_and_tells_all_anew() -> None:
    side = Side("a")
    rows = (Row("r0", 2, 1, 7),)
    assert side.others.hear(Message(VERSION, "b", 5, rows, True, ()), 10.0)
    side.others.expire(10.1 + LOST_S)
    assert side.others.count == 0
    assert side.others.hear(Message(VERSION, "b", 6, (), False, ()), 20.0)
    assert not side.others.hear(Message(VERSION, "b", 7, (), False, ()), 20.0)
    assert side.others.count == 1
    assert side.loads() == [(0, 0, 0)] * 2
    side.others.hear(Message(VERSION, "b", 4, rows, True, ()), 20.0)  # late
    assert side.loads() == [(0, 0, 0)] * 2


def test_silent_routers_keep_no_place_from_new_ones() -> None:
    side = Side("a")
    rows = (Row("r0", 1, 0, 0),)
    most = messages.MOST_ROUTERS
    for number in range(most + 1):
        side.others.hear(Message(VERSION, f"b{number}", 1, rows, True, ()), 10.0)
    assert side.others.count == side["r0"].load == most
    side.others.expire(10.1 + LOST_S)
    for number in range(most + 1):
        side.others.hear(Message(VERSION, f"c{number}", 1, rows, True, ()), 20.0)
    assert side.others.count == side["r0"].load == len(side.others._routers) == most
    side.others.hear(Message(VERSION, "a", 1, (), True, ()), 21.0 + KEPT_S)
    side.others.expire(21.0 + KEPT_S)
    assert side.others.count == len(side.others._routers) == 0
