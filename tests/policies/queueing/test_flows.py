"""Sharing by flow: costs, rounds, charges, and the first ticket against the rule itself."""

import pytest
from hypothesis import given, strategies as st

from policies.queueing.flows import Book, FlowQueue, Tariff
from policies.queueing.ticket import NOT_CHARGED, Ticket
from tests.policies.queueing.helpers import pushed, ticket

# -- the book ---------------------------------------------------------------------------------


def counters(book: Book, made: Ticket) -> tuple[float, float]:
    key, user = book.user(made)
    return key.counter, user.counter


def test_a_prediction_is_replaced_by_the_true_cost_once() -> None:
    book = Book(Tariff(input=1.0))
    made = ticket(key="k", user="u", tokens=100)
    book.correct(made, 30.0)  # the ticket was never charged
    assert counters(book, made) == (0.0, 0.0)
    book.passed(made)
    book.correct(made, 30.0)
    assert counters(book, made) == (30.0, 30.0)
    assert made.charged == NOT_CHARGED
    book.correct(made, 0.0)
    assert counters(book, made) == (30.0, 30.0)


# -- the queue of flows -----------------------------------------------------------------------


def place(book: Book, each: Ticket) -> tuple[float, ...]:
    """The rule: key, then user, then urgency, each tie by age."""
    key = book.keys.by_name[each.flow.account]
    assert key.users is not None
    user = key.users.by_name[each.flow.member]
    of = book.tariff.key
    return (
        *(of(key.counter), key.number, of(user.counter), user.number),
        *(each.number, each.order),
    )


def is_within(book: Book, each: Ticket, waiting: list[Ticket]) -> bool:
    mine, width = place(book, each), book.tariff.width
    keys = [place(book, other)[0] for other in waiting]
    same_key = [other for other in waiting if other.flow.account == each.flow.account]
    users = [place(book, other)[2] for other in same_key]
    same_user = [other.number for other in same_key if other.flow.member == each.flow.member]
    return (
        mine[0] <= min(keys) + width
        and mine[2] <= min(users) + width
        and each.number == min(same_user)
    )


TARIFFS = [
    Tariff(input=1.0, output=2.0),
    Tariff(input=1.0, output=2.0, width=40.0),
    Tariff(request=1.0, quantum=1.0),
    Tariff(input=1.0, quantum=64.0, width=1.0),
]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "take", "drop", "settle", "any"]),
        st.integers(0, 11),
        st.sampled_from([0, 16, 32, 128]),
        st.sampled_from([1.5, 2.0, 2.25]),
    ),
    max_size=60,
)


@pytest.mark.parametrize("tariff", TARIFFS)
@given(STEPS)
def test_the_first_ticket_is_that_of_the_rule(
    tariff: Tariff, steps: list[tuple[str, int, int, float]]
) -> None:
    book = Book(tariff)
    line = FlowQueue(book)
    waiting: list[Ticket] = []
    sent: list[Ticket] = []
    for act, number, tokens, urgency in steps:
        if act == "push":
            flow = {"key": f"k{number % 3}", "user": f"u{number // 3 % 2}"}
            made = ticket(**flow, weight=1.0 + number % 2, tokens=tokens, number=urgency)
            line.push(made, 0.0)
            waiting.append(made)
        elif act == "settle" and sent:
            book.correct(sent.pop(), float(tokens))
        elif waiting and act in ("take", "any"):
            found = line.first(0.0) if act == "take" else waiting[number % len(waiting)]
            assert found is not None
            line.take(found, 0.0)
            waiting.remove(found)
            sent.append(found)
        elif waiting and act == "drop":
            line.drop(waiting.pop(number % len(waiting)))
        if not waiting:
            assert line.first(0.0) is None
            assert line.band(9, 0.0) == []
            continue
        first = min(waiting, key=lambda each: place(book, each))
        assert line.first(0.0) is first
        assert line.rank(0.0) == place(book, first)[:2]
        within = {each for each in waiting if is_within(book, each, waiting)}
        assert {each for each in waiting if line.within(each, 0.0)} == within
        band = line.band(64, 0.0)
        assert band[0] is first
        assert set(band) == within


def test_a_band_is_shared_out_among_flows() -> None:
    line = FlowQueue(Book(Tariff(input=1.0)))
    pushed(line, [ticket(key="many") for _ in range(20)] + [ticket(key="few") for _ in range(2)])
    keys = [each.flow.account for each in line.band(8, 0.0)]
    assert len(keys) == 8
    assert keys.count("few") == 2


def test_nodes_of_flows_that_have_gone_are_not_kept() -> None:
    line = FlowQueue(Book(Tariff(input=1.0)))
    for number in range(500):
        made = ticket(key=f"k{number}")
        line.push(made, 0.0)
        line.take(made, 0.0)
    assert len(line._by_name) < 100
    line.push(ticket(key="k"), 0.0)
    for number in range(500):
        made = ticket(key="k", user=f"u{number}")
        line.push(made, 0.0)
        line.take(made, 0.0)
    assert len(line._by_name["k"].by_name) < 100
