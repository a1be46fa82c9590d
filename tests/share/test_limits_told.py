"""A tenant gets its limits once from all routers, whatever is lost or comes late."""

from collections.abc import Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given, strategies as st

from router.admission.limits import LimitCheck
from router.share import limits_told, messages
from router.share.limits_told import IDLE_S, SETTLED_S
from router.share.messages import LOST_S, VERSION, Message, Use, decoded, encoded
from router.share.others import KEPT_S
from router.share.own import WHOLE_S
from tests.admission.world import Spot, World, config
from tests.share.limits_helpers import Fleet, Limits, Side

WITHIN = LimitCheck.WITHIN
REQUESTS: Limits = (None, 60.0, None)
TOKENS: Limits = (None, None, 6000.0)
RUNNING: Limits = (4, None, None)
INTERVAL_S = 0.02


def granted(side: Side, now: float, count: int = 1, *, tokens: int = 1, batch: bool = False) -> int:
    account = side.account(now)
    return [account.ask(tokens, now, is_batch=batch) for _ in range(count)].count(WITHIN)


def level(side: Side, now: float) -> tuple[float | None, float | None]:
    return side.account(now).left(now)


def test_a_limit_of_requests_is_granted_once() -> None:
    one, other = (fleet := Fleet(2, REQUESTS)).sides
    assert granted(one, 0.0, 40) == 40
    fleet.tell(0.0)
    assert granted(other, 0.0, 40) == 20
    fleet.tell(0.0)
    assert granted(one, 0.0) == granted(other, 0.0) == 0
    fleet.tell(0.0)
    assert granted(other, 1.0) == 1
    fleet.tell(1.0)
    assert granted(one, 1.0) == 0


def test_tokens_are_corrected_at_the_other_router_too() -> None:
    one, other = (fleet := Fleet(2, TOKENS)).sides
    assert granted(one, 0.0, tokens=5000) == 1
    fleet.tell(0.0)
    assert level(other, 0.0)[1] == 1000
    one.account(0.0).settle(5000, 100, 50, 0.0)
    fleet.tell(0.0)
    assert level(one, 0.0)[1] == level(other, 0.0)[1] == 5900
    assert granted(one, 0.0, tokens=0) == 1
    one.account(0.0).settle(0, 7000, 50, 0.0)
    fleet.tell(0.0)
    assert level(one, 0.0)[1] == level(other, 0.0)[1] == -1100


def test_an_excess_is_repaid() -> None:
    one, other = (fleet := Fleet(2, REQUESTS)).sides
    assert granted(one, 0.0, 60) == granted(other, 0.0, 60) == 60
    fleet.tell(0.0)
    assert level(one, 0.0)[0] == level(other, 0.0)[0] == -60
    assert granted(one, 60.0) == granted(other, 60.0) == 0
    assert granted(one, 61.0) == 1


def test_batch_requests_of_other_routers_refuse_no_chat() -> None:
    one, other = (fleet := Fleet(2, REQUESTS)).sides
    assert granted(one, 0.0, 60, batch=True) == 60
    fleet.tell(0.0)
    assert granted(other, 0.0, batch=True) == 0
    assert granted(other, 0.0, 70) == 60


def test_what_was_granted_before_a_router_was_heard_is_only_a_base() -> None:
    one, other = Side("a", REQUESTS), Side("b", REQUESTS)
    granted(one, 0.0, 40)
    one.tell(0.0)
    granted(one, 0.0, 5)
    other.hear(one.tell(0.0), 0.0)
    assert level(other, 0.0)[0] == 60
    granted(one, 0.0, 3)
    other.hear(one.tell(0.0), 0.0)
    assert level(other, 0.0)[0] == 57


def test_a_row_that_was_not_in_the_first_message_is_still_only_a_base_if_it_is_older() -> None:
    one, other = Side("a", REQUESTS), Side("b", REQUESTS)
    granted(one, 0.0, 40)
    one.tell(0.0)
    other.hear(one.tell(0.1), 0.1)  # not whole
    other.hear(one.tell(WHOLE_S), WHOLE_S)
    assert level(other, WHOLE_S)[0] == 60


def test_a_lost_first_row_is_made_good() -> None:
    one, other = Side("a", REQUESTS), Side("b", REQUESTS)
    other.hear(one.tell(0.0), 0.0)
    granted(one, 0.1, 40)
    one.tell(0.1)  # lost
    other.hear(one.tell(0.2), 0.2)
    assert level(other, 0.2)[0] == 60
    other.hear(one.tell(WHOLE_S), WHOLE_S)
    assert level(other, WHOLE_S)[0] == 20


def test_a_late_and_a_repeated_message_count_nothing() -> None:
    one, other = Side("a", REQUESTS), Side("b", REQUESTS)
    other.hear(one.tell(0.0), 0.0)
    granted(one, 0.0, 10)
    early = one.tell(0.0)
    granted(one, 0.0, 10)
    late = one.tell(0.0)
    for message in (late, early, late, early):
        other.hear(message, 0.0)
    assert level(other, 0.0)[0] == 40


def test_an_idle_row_ends_and_begins_again_at_zero() -> None:
    fleet = Fleet(2, REQUESTS)
    one, other = fleet.sides
    granted(one, 0.0, 10)
    one.account(0.0).settle(1, 1, None, 0.0)
    for _ in range(9):
        one.account(0.0).settle(1, 1, None, 0.0)
    end = round(IDLE_S) + 4
    for second in range(end):
        fleet.tell(float(second))
    assert not one.keys.used and one.keys.accounts["acme"].used == (0, 0, 0, 0)
    assert all(not one.tell(end + second).uses for second in range(3))
    granted(one, end, 7)
    fleet.tell(end)
    assert level(other, end)[0] == 53


def test_a_row_stays_while_a_request_is_under_way() -> None:
    one = Side("a", TOKENS)
    granted(one, 0.0, tokens=1000)
    one.tell(0.0)
    one.tell(2 * IDLE_S)
    one.account(0.0).settle(1000, 10, 5, 3 * IDLE_S)
    (use,) = one.tell(3 * IDLE_S).uses
    assert use.tokens == 10


def test_running_requests_count_everywhere_and_wake_the_queue() -> None:
    one, other, third = (fleet := Fleet(3, RUNNING)).sides
    assert granted(one, 0.0, 3) == 3
    fleet.tell(0.0)
    assert granted(other, 0.0, 3) == 1
    fleet.tell(0.0)
    assert granted(third, 0.0) == granted(one, 0.0) == 0
    woken = third.woken
    one.account(0.0).settle(1, 1, None, 0.0)
    fleet.tell(0.0)
    assert third.woken > woken
    assert granted(third, 0.0, 3) == 1


def test_running_batch_requests_count_for_batch_only() -> None:
    one, other = (fleet := Fleet(2, RUNNING)).sides
    assert granted(one, 0.0, 4, batch=True) == 4
    fleet.tell(0.0)
    assert granted(other, 0.0, batch=True) == 0
    assert granted(other, 0.0, 5) == 4


def test_requests_that_the_limit_blocks_are_told_with_the_wait_of_the_oldest() -> None:
    world = World([Spot("a", slots=9)], config(policy="fifo", gates={"waiting": 9}))
    side = Side("a", RUNNING)
    limit = side.account(0.0).concurrency
    tickets = [world.come(tokens=100, output=5000, concurrency=limit) for _ in range(7)]
    now = tickets[4].arrival + 2.0
    (told,) = side.tell(now).uses
    assert (told.running, told.waiting, told.waited_s) == (4, 3, 2.0)
    assert not side.tell(now + 0.1).uses, "the time grows everywhere alike"
    world.leave(tickets[0])
    (told,) = side.tell(now + 0.1).uses
    assert (told.running, told.waiting) == (4, 2)


def test_requests_that_wait_for_a_replica_keep_no_slot_from_other_routers() -> None:
    world = World([Spot("a", slots=1)], config(policy="fifo", gates={"waiting": 1}))
    side = Side("a", RUNNING)
    for _ in range(4):
        world.come(tokens=100, output=5000)
    tickets = [
        world.come(tokens=100, output=50, concurrency=side.account(0.0).concurrency)
        for _ in range(7)
    ]
    assert [t.blocked_in is not None for t in tickets] == [False] * 4 + [True] * 3
    assert [use.waiting for use in side.tell(world.now).uses] == [0]


def test_the_slots_of_older_requests_elsewhere_are_left_free() -> None:
    world = World([Spot("a", slots=9)], config(policy="fifo", gates={"waiting": 9}))
    side = Side("a", RUNNING)
    side.hear(message(1), world.now)
    limit = side.account(0.0).concurrency
    elder, younger = use(running=3, generation=2), use(running=3, generation=2)
    elder = msgspec.structs.replace(elder, batch=0, waiting=1, waited_s=9.0)
    side.hear(message(2, elder), world.now)
    assert limit.free(False) == 0
    ticket = world.come(tokens=100, output=50, concurrency=limit)
    assert ticket.blocked_in is not None
    side.tell(world.now)
    assert limit.free(False) == 0
    younger = msgspec.structs.replace(younger, batch=0, waiting=1, waited_s=0.0)
    side.hear(message(3, younger), world.now + 0.1)
    assert limit.free(False) == 1 and ticket.blocked_in is None
    side.hear(message(4, elder), world.now + 0.1)
    side.others.expire(world.now + 0.1)
    side.hear(Message(VERSION, "a", 1, (), False, ()), world.now + 2 * LOST_S)
    side.others.expire(world.now + 2 * LOST_S)
    assert limit.free(False) == 4


def test_a_silent_router_runs_nothing_but_what_it_granted_stays() -> None:
    limits: Limits = (4, 60.0, None)
    one, other = (fleet := Fleet(2, limits)).sides
    assert granted(one, 0.0, 4) == 4
    fleet.tell(0.0)
    assert other.account(0.0).concurrency.free(False) == 0
    fleet.sides.remove(one)
    for step in range(round(LOST_S / 0.5)):
        fleet.tell(0.5 * step)
    assert other.account(LOST_S).concurrency.free(False) == 0
    woken = other.woken
    fleet.tell(LOST_S + 0.1)
    assert other.woken > woken
    assert other.account(LOST_S).concurrency.free(False) == 4
    assert other.shared.parts == 1, "the channel works, so the other router has left"
    assert level(other, LOST_S + 0.1)[0] == pytest.approx(56 + LOST_S + 0.1)


def test_a_router_that_comes_back_soon_goes_on_and_later_begins_anew() -> None:
    for away_s, expected in ((KEPT_S / 2, 50), (KEPT_S + 1.0, 60)):
        fleet = Fleet(2, REQUESTS)
        one, other = fleet.sides
        granted(one, 0.0, 1)
        fleet.tell(0.0)
        fleet.sides.remove(one)
        fleet.tell(away_s)
        granted(one, away_s, 10)
        other.hear(one.tell(away_s), away_s)
        assert level(other, away_s)[0] == expected


# -- the channel is away ---------------------------------------------------------------------


def away(fleet: Fleet, since: float) -> float:
    """Let the channel be silent until all routers have noticed; returns that time."""
    fleet.is_away = True
    fleet.tell(since + LOST_S)
    assert {side.shared.parts for side in fleet.sides} == {1}
    fleet.tell(since + LOST_S + 0.1)
    return since + LOST_S + 0.1


def back(fleet: Fleet, now: float) -> float:
    """Let the channel work again until all routers use whole limits; returns that time."""
    fleet.is_away = False
    for _ in range(round(SETTLED_S / 0.1) + 2):
        fleet.tell(now)
        now += 0.1
    assert {side.shared.parts for side in fleet.sides} == {1}
    return now


def test_without_the_channel_each_router_grants_its_part() -> None:
    fleet = Fleet(3, (7, 60.0, 6000.0))
    now = away(fleet, 0.0)
    for side in fleet.sides:
        assert side.shared.parts == 3
        assert level(side, now) == (pytest.approx(20), pytest.approx(2000))
        assert granted(side, now, 30) == 2, "7 // 3 concurrent ones"
    now = back(fleet, now)
    for side in fleet.sides:
        assert level(side, now + 60.0) == (60.0, 6000.0)
        assert granted(side, now, 30) == 1, "of the seven, six run"


def test_a_limit_below_the_number_of_routers_allows_one_request_at_each() -> None:
    fleet = Fleet(3, (2, 2.0, None))
    now = away(fleet, 0.0)
    for side in fleet.sides:
        assert granted(side, now, 5) == 1
        side.account(now).settle(1, 1, None, now)
        assert granted(side, now + 89.0) == 0
        assert granted(side, now + 91.0) == 1
    fleet = Fleet(3, (0, None, None))
    now = away(fleet, 0.0)
    assert [granted(side, now) for side in fleet.sides] == [0, 0, 0]


def test_a_tenant_that_comes_while_the_channel_is_away_gets_a_part() -> None:
    fleet = Fleet(2, REQUESTS)
    now = away(fleet, 0.0)
    assert [granted(side, now, 60) for side in fleet.sides] == [30, 30]


def test_a_router_that_never_heard_another_one_uses_whole_limits() -> None:
    fleet = Fleet(1, REQUESTS)
    fleet.is_away = True
    fleet.tell(10 * LOST_S)
    assert granted(fleet.sides[0], 10 * LOST_S, 70) == 60


def test_what_a_part_granted_is_not_owed_to_the_others_but_what_was_granted_before_is() -> None:
    fleet = Fleet(2, REQUESTS)
    one, other = fleet.sides
    fleet.is_away = True
    assert granted(one, 0.0, 40) == 40  # before it has noticed
    now = away(fleet, 0.0)
    for _ in range(20):
        now += 60.0
        fleet.tell(now)
        assert granted(one, now, 60) == 30
    now = back(fleet, now)
    assert level(other, now)[0] == pytest.approx(-10 + SETTLED_S + 0.2, abs=2.0)


def test_what_was_granted_since_the_last_message_is_owed_after_the_channel_is_back() -> None:
    fleet = Fleet(2, REQUESTS)
    one, other = fleet.sides
    granted(one, 0.0, 1)
    fleet.tell(0.0)
    granted(one, 0.0, 30)
    now = LOST_S + 0.1
    for side in fleet.sides:
        side.others.expire(now)
    granted(one, now, 5)
    fleet.is_away = True
    fleet.tell(now)
    now = back(fleet, now)
    assert other.others._routers[one.name].uses["acme"].used[0] == 31


def test_whole_limits_are_used_when_all_have_told_their_running_requests() -> None:
    fleet = Fleet(2, RUNNING)
    now = away(fleet, 0.0)
    assert [granted(side, now, 4) for side in fleet.sides] == [2, 2]
    fleet.is_away = False
    fleet.tell(now)
    fleet.tell(now + SETTLED_S)
    assert {side.shared.parts for side in fleet.sides} == {2}
    fleet.tell(now + SETTLED_S + 0.1)
    assert {side.shared.parts for side in fleet.sides} == {1}
    assert [granted(side, now, 4) for side in fleet.sides] == [0, 0]


def test_a_channel_that_comes_back_briefly_changes_no_part() -> None:
    fleet = Fleet(3, REQUESTS)
    now = away(fleet, 0.0)
    one = fleet.sides[0]
    one.hear(one.tell(now), now)  # its own message only
    now += LOST_S + 0.1
    fleet.tell(now)
    assert one.shared.parts == 3


# -- what lies, and memory -------------------------------------------------------------------


def use(tenant: str = "acme", used: int = 0, running: int = 0, generation: int = 1) -> Use:
    return Use(tenant, generation, used, used, used, used, running, running, 0, 0.0)


def message(number: int, *uses: Use) -> Message:
    return Message(VERSION, "liar", number, (), False, (), uses=uses)


@pytest.mark.parametrize(
    "bad",
    [
        use(used=messages.MOST_USED + 1),
        use(used=-messages.MOST_USED - 1),
        use(running=-1),
        use(running=messages.MOST_LOAD + 1),
        use(generation=-1),
        use(generation=2),
        use("x" * 1000),
    ],
)
def test_rows_that_no_router_sends_are_ignored(bad: Use) -> None:
    assert decoded(encoded(message(1, bad))) is None
    assert decoded(encoded(message(1, use(used=-5)))) is not None
    assert decoded(encoded(message(1, *[use()] * (messages.MOST_USES + 1)))) is None
    for lie in (float("nan"), 1.5, "many", None, 2**70):
        rows = (("acme", 1, lie, 0, 0, 0, 0, 0, 0, 0.0),)
        data = (VERSION, "liar", 1, (), False, (), (), rows)
        assert decoded(_packed(data)) is None


def _packed(data: object) -> bytes:
    try:
        return msgspec.msgpack.encode(data)
    except OverflowError:
        return b""


def test_a_message_without_the_field_is_of_a_router_that_tells_no_limits() -> None:
    assert decoded(_packed((VERSION, "old", 1, (), False, ()))) is not None


def test_a_lie_locks_a_tenant_out_for_one_minute_at_most() -> None:
    side = Side("a", (4, 60.0, 6000.0))
    side.hear(message(1), 0.0)
    side.hear(message(2, use(used=messages.MOST_USED, running=9, generation=2)), 0.0)
    assert level(side, 0.0) == (-60.0, -6000.0)
    side.hear(Message(VERSION, "a", 1, (), False, ()), LOST_S + 0.1)  # The channel works.
    side.others.expire(LOST_S + 0.1)
    assert (granted(side, 59.9), granted(side, 61.1)) == (0, 1)
    side.hear(message(3, use(used=-messages.MOST_USED, generation=2)), 62.0)
    assert level(side, 62.0) == (60.0, 6000.0)


def test_memory_is_bounded() -> None:
    most = limits_told.MOST_TENANTS
    names = tuple(f"t{number}" for number in range(2 * most + 50))
    one, other = Side("a", RUNNING, names), Side("b", RUNNING, names)
    for name in names[: most + 10]:
        one.account(0.0, name).ask(1, 0.0)
    one.tell(0.0)
    assert one.keys.used is not None and len(one.keys.used) == most
    for number, name in enumerate(names, 1):
        told = use(name, running=2, generation=number), use("unknown")
        other.hear(message(number, *told), 0.0)
    heard = other.others._routers["liar"].uses
    assert len(heard) == len(other.shared._running) == 2 * most and "unknown" not in heard
    assert other.keys.accounts[names[0]].concurrency.elsewhere == 0
    assert other.keys.accounts[names[-1]].concurrency.elsewhere == 2
    for number in range(2 * messages.MOST_ROUTERS):
        other.hear(Message(VERSION, f"x{number}", 1, (), False, ()), 0.0)
    assert len(other.others._routers) == messages.MOST_ROUTERS


def test_all_rows_are_told_in_turn() -> None:
    names = tuple(f"t{number}" for number in range(messages.MOST_USES * 5 // 2))
    one = Side("a", REQUESTS, names)
    for name in names:
        one.account(0.0, name).ask(1, 0.0)
    told = [{each.tenant for each in one.tell(0.0).uses} for _ in range(4)]
    assert [len(each) for each in told] == [messages.MOST_USES] * 2 + [messages.MOST_USES // 2, 0]
    assert set.union(*told) == set(names)
    again = [{each.tenant for each in one.tell(WHOLE_S * turn).uses} for turn in (1, 2, 3)]
    assert set.union(*again) == set(names)


# -- any order of events ---------------------------------------------------------------------

STEP = st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 30), st.floats(0.0, 0.8))


@given(st.lists(STEP, max_size=80), st.sampled_from((30, 60, 600)))
def test_any_window_has_at_most_the_limit_and_what_was_not_heard(
    steps: Sequence[tuple[int, int, int, float]], limit: int
) -> None:
    """At each grant, of all windows that end with it. What is not heard then is known here."""
    fleet = Fleet(3, (None, float(limit), None))
    sides, now = fleet.sides, 0.0
    way: list[tuple[Side, Message]] = []  # messages, each with its receiver
    total = dict.fromkeys(sides, 0)  # granted by each router
    forgiven = 0.0  # debts of more than a minute
    grants: list[tuple[float, float]] = []  # times, and what was forgiven until then

    def heard(side: Side) -> int:
        """What a router counts that the others have granted."""
        rows = [router.uses.get("acme") for router in side.others._routers.values()]
        return sum(row.used[0] for row in rows if row is not None)

    def hear(side: Side, sent: Message) -> None:
        nonlocal forgiven
        before = level(side, now)[0] or 0.0, heard(side)
        side.hear(sent, now)
        forgiven += max(0.0, heard(side) - before[1] - before[0] - limit)

    for kind, who, count, wait_s in steps:
        side = sides[who]
        if kind <= 2:
            new = granted(side, now, count)
            total[side] += new
            grants += [(now, forgiven)] * new
            unheard = sum(total.values()) - total[side] - heard(side)
            for first, (begin, until) in enumerate(grants if new else ()):
                most = limit * (1 + (now - begin) / 60) + unheard + forgiven - until
                assert len(grants) - first <= most + 1e-6
        elif kind == 3:
            sent = side.tell(now)
            way += [(other, sent) for other in sides if other is not side]
        elif way:
            each = way.pop(count % len(way))
            if kind == 4:
                hear(*each)
        now += wait_s
        for side in sides:
            side.hear(Message(VERSION, side.name, 1, (), False, ()), now)  # The channel works.
    # Nothing is lost for ever, and nothing is counted twice.
    now += WHOLE_S
    for sent in [side.tell(now) for side in sides]:
        for side in sides:
            hear(side, sent)
    assert [total[side] + heard(side) for side in sides] == [sum(total.values())] * 3


@given(st.lists(STEP, max_size=80), st.integers(1, 9))
def test_more_requests_than_the_limit_run_only_if_some_were_not_heard(
    steps: Sequence[tuple[int, int, int, float]], limit: int
) -> None:
    fleet = Fleet(3, (limit, None, None))
    sides, now = fleet.sides, 0.0
    way: list[tuple[Side, Message]] = []

    def running(side: Side) -> int:
        return side.account(now).concurrency.own

    for kind, who, count, _ in steps:
        side = sides[who]
        if kind <= 1:
            for _ in range(granted(side, now, count)):
                unheard = sum(map(running, sides)) - running(side)
                unheard -= side.account(now).concurrency.elsewhere
                assert sum(map(running, sides)) <= limit + unheard
        elif kind == 2 and running(side):
            side.account(now).settle(1, 1, None, now)
        elif kind == 3:
            sent = side.tell(now)
            way += [(other, sent) for other in sides if other is not side]
        elif way:
            receiver, sent = way.pop(count % len(way))
            if kind == 4:
                receiver.hear(sent, now)
    now += WHOLE_S
    for sent in [side.tell(now) for side in sides]:
        for side in sides:
            side.hear(sent, now)
    for side in sides:
        elsewhere = side.account(now).concurrency.elsewhere
        assert elsewhere + running(side) == sum(map(running, sides))


@pytest.mark.parametrize("loss", [0.0, 0.3])
@pytest.mark.parametrize("rate", [3.0, 20.0, 200.0])
def test_four_routers_grant_one_limit(loss: float, rate: float) -> None:
    """600 requests/minute; `rate`: requests/s that come to each router."""
    rng = Random(f"{loss} {rate}")
    fleet = Fleet(4, (None, 600.0, None))
    minutes, delay_s = 3, 0.005
    way: list[tuple[float, Side, Message]] = []
    due = {side: rng.random() / rate for side in fleet.sides}
    total = 0
    for step in range(round(60 * minutes / INTERVAL_S)):
        now = step * INTERVAL_S
        arrived, way = [m for m in way if m[0] <= now], [m for m in way if m[0] > now]
        for _, side, sent in arrived:
            side.hear(sent, now)
        for side in fleet.sides:
            while due[side] <= now:
                total += granted(side, now)
                due[side] += rng.expovariate(rate)
        for side in fleet.sides:
            sent = side.tell(now)
            way += [
                (now + delay_s, other, sent)
                for other in fleet.sides
                if other is side or rng.random() >= loss
            ]
            side.others.expire(now)
    asked = 4 * rate * 60 * minutes
    whole = 600 * (1 + minutes)
    # What three others grant until their messages come; after a loss, some intervals later.
    excess = 3 * (rate * (INTERVAL_S + delay_s) + 3) * (1 + 10 * loss)
    assert min(0.95 * whole, 0.9 * asked) <= total <= whole + excess
