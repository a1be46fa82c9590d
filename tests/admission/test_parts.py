"""The small parts of admission: learned limits, service rates, output lengths, stride, rules."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest

from policies.queueing.flow_identity import FlowIdentity
from policies.queueing.ticket import CLASSES
from router.admission.gates.aimd_limit import FIRST, LEAST, MOST, AimdLimit
from router.admission.output_lengths import FLOWS_MAX, OutputPredictor
from router.admission.rules import Rules
from router.admission.waiting.stride import Stride
from router.config.model import Config
from tests.admission.world import Spot, World, config
from tests.tickets import make_ticket

# Learned limits.


def test_a_limit_that_is_used_up_doubles_a_round_until_the_first_cut() -> None:
    limit = AimdLimit()
    first = limit.allowed()
    for _ in range(first):
        limit.answered(0.0, 1.0, 1.0, 10**6)
    assert limit.allowed() == 2 * first


def test_a_limit_that_is_used_up_grows_by_one_a_round_after_it() -> None:
    limit = AimdLimit()
    limit.failed(-2.0, -1.0)
    before = limit.allowed()
    now = 0.0
    for _ in range(before):
        limit.answered(now, now + 1.0, 1.0, before)
    assert limit.allowed() in (before, before + 1)
    for _ in range(10_000):
        now += 0.1
        limit.answered(now, now + 1.0, 1.0, 10**6)
    assert limit.limit <= MOST


def test_a_limit_that_is_not_used_up_does_not_grow() -> None:
    limit = AimdLimit()
    for number in range(1000):
        limit.answered(float(number), number + 1.0, 1.0, 2)
    assert limit.limit == AimdLimit().limit


def test_late_answers_cut_it_once_a_round_and_never_to_nothing() -> None:
    limit = AimdLimit()
    limit.answered(0.0, 1.0, 1.0, 0)
    for _ in range(10):  # sent before the first cut: they carry no new information
        limit.answered(0.5, 20.0, 1.0, 16)
    assert limit.limit == pytest.approx(0.9 * FIRST)
    for number in range(100):
        limit.failed(21.0 + number, 21.5 + number)
    assert limit.allowed() == LEAST


def test_a_moment_more_is_not_late() -> None:
    limit = AimdLimit()
    for number in range(1000):
        limit.answered(float(number), number + 0.001 * (1 + number % 100), 1.0, 2)
    assert limit.allowed() >= FIRST


def test_the_pace_is_per_unit_of_work_and_the_best_is_forgotten() -> None:
    limit = AimdLimit()
    limit.answered(0.0, 1.0, 100.0, 0)
    limit.answered(1.0, 11.0, 1000.0, 0)  # ten times as long, with ten times the work
    assert limit.limit == AimdLimit().limit
    limit.answered(200.0, 201.0, 10.0, 0)  # two windows later, ten times as slow is the usual time
    limit.answered(300.0, 301.0, 10.0, 0)
    limit.answered(400.0, 401.0, 10.0, 0)
    assert limit.limit > 14.0


@pytest.mark.parametrize("work", [0.0, -5.0, 1e300])
@pytest.mark.parametrize("took_s", [0.0, -1.0, 1e9])
def test_odd_answers_break_nothing(work: float, took_s: float) -> None:
    limit = AimdLimit()
    for _ in range(50):
        limit.answered(10.0, 10.0 + took_s, work, 10**9)
    assert LEAST <= limit.allowed() <= MOST


# Predicted output lengths.


def test_outputs_are_as_a_flows_last_ones_were() -> None:
    outputs = OutputPredictor()
    long, short = FlowIdentity("k", "long"), FlowIdentity("k", "short")
    for _ in range(30):
        outputs.learn(long, 1000)
        outputs.learn(short, 10)
    assert outputs.predict(long) == pytest.approx(1000, rel=0.05)
    assert outputs.predict(short) == pytest.approx(10, abs=5)
    assert 10 < outputs.predict(FlowIdentity("k", "unknown")) < 1000
    outputs.learn(short, 10_000)
    assert outputs.predict(short) < 2100  # one answer is not enough


def test_names_cost_no_memory_without_end() -> None:
    outputs = OutputPredictor()
    for number in range(3 * FLOWS_MAX):
        outputs.learn(FlowIdentity("k", f"u{number}"), 5)
        outputs.learn(FlowIdentity("k", "steady"), 700)
    assert len(outputs) == FLOWS_MAX
    assert outputs.predict(FlowIdentity("k", "steady")) > 650


# Stride and rules.


def test_a_class_that_comes_back_has_saved_up_nothing() -> None:
    stride = Stride(Rules(config()).classes)
    stride.begins(2)
    for _ in range(100):
        stride.serves(2, 1000.0, 2.0)
    stride.begins(4)
    assert stride.passes[4] >= stride.passes[2] - 1000.0 / 4.0
    stride.ends(2)
    stride.ends(4)
    stride.begins(3)  # none waited: all begin equal
    assert stride.passes[3] == max(stride.passes)


def test_weights_between_classes_are_mixed_and_end_at_high() -> None:
    stride = Stride(Rules(config()).classes)
    assert [stride.weight(float(level)) for level in (1, 2, 3, 4)] == [8.0, 4.0, 2.0, 1.0]
    assert stride.weight(2.5) == 3.0
    assert stride.weight(0.3) == stride.weight(1.0)
    assert stride.weight(9.0) == stride.weight(4.0)


def test_age_never_makes_anybody_more_urgent_than_high() -> None:
    rules = Rules(config(batch_becomes_normal_after_s=20.0))
    assert rules.aged(4.0, 20.0) == 2.0
    assert rules.aged(4.0, 1e9) == 1.0
    assert rules.aged(1.0, 1e9) == 1.0
    assert rules.aged(0.3, 1e9) == 0.3


def test_who_starves_is_promoted_while_there_is_time_left() -> None:
    for rules in Rules(Config()).classes:
        assert rules.promote_s < rules.bound_s <= rules.wait_s


@pytest.mark.parametrize(
    ("number", "urgency"),
    [(0.0, 0), (0.49, 0), (0.5, 1), (2.0, 2), (3.5, 4), (4.0, 4), (9.0, 4), (-3.0, 0)],
)
def test_a_class_is_the_nearest_number(number: float, urgency: int) -> None:
    assert make_ticket(number=number).urgency == urgency < CLASSES


def test_a_ticket_keeps_what_it_was_told() -> None:
    ticket = make_ticket(model="m", tokens=100, output=10)
    assert (ticket.lane, ticket.reserved, ticket.number) == ("m", 110, 2.0)
    assert make_ticket(model="m", lane="pinned").lane == "pinned"
    assert make_ticket().deadline == inf


def test_no_answer_is_taken_to_be_longer_than_its_client_allows() -> None:
    world = World([Spot("a", slots=1)], config(policy="shortest", gates={"prefill_tokens": 0}))
    for _ in range(4):
        world.come(tokens=10, output=10)
    world.run(0.0)
    short = make_ticket(tokens=10, output_limit=3, arrival=world.now)
    assert not world.queue.offer(short, world.now)
    assert short.view.output_tokens == 3
    world.queue.leave(short)
    world.run(60.0)
    world.assert_empty()


# Class queues.


def test_a_row_keeps_few_of_those_that_have_gone() -> None:
    """Tickets leave in the order of their arrival, while many wait."""
    world = World([], config())
    tickets = [world.come(tokens=10, output=10) for _ in range(1000)]
    row = tickets[0].row
    assert row.eldest() is tickets[0]
    for gone, eldest in pairwise(tickets[:901]):
        world.leave(gone)
        assert row.eldest() is eldest
        assert row.held() <= max(2 * row.count, row.count + 65)
    assert row.tickets() == tickets[900:]
