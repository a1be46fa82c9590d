"""Predicted output length: the first prediction of a flow, and which flows are evicted first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.queueing.flow_identity import FlowIdentity
from router.admission.output_lengths import FLOWS_MAX, OutputPredictor
from router.admission.queue_state import MOST_PREDICTED
from tests.admission.world import Spot, World, config
from tests.tickets import make_ticket

FIRST = 200  # tokens of the first prediction


def test_before_the_first_answer_a_usual_length_is_predicted() -> None:
    assert OutputPredictor().predict(FlowIdentity("k", "u")) == FIRST


def test_one_answer_moves_a_prediction_by_a_fifth() -> None:
    outputs, flow = OutputPredictor(), FlowIdentity("k", "u")
    outputs.learn(flow, 1200)
    assert outputs.predict(flow) == 400
    outputs.learn(flow, 400)
    assert outputs.predict(flow) == 400


def test_an_unknown_flow_is_predicted_what_all_flows_are() -> None:
    outputs = OutputPredictor()
    for number in range(400):
        outputs.learn(FlowIdentity("k", f"u{number}"), 1000)
    assert outputs.predict(FlowIdentity("other")) == pytest.approx(1000, rel=0.01)
    new = FlowIdentity("new")
    outputs.learn(new, 0)  # a new flow begins with the general prediction
    assert outputs.predict(new) == pytest.approx(800, rel=0.02)


def test_members_and_accounts_are_different_flows() -> None:
    outputs = OutputPredictor()
    for _ in range(50):
        outputs.learn(FlowIdentity("a", "u"), 1000)
        outputs.learn(FlowIdentity("b", "u"), 10)
        outputs.learn(FlowIdentity("a", "v"), 500)
    assert outputs.predict(FlowIdentity("a", "u")) == pytest.approx(1000, rel=0.01)
    assert outputs.predict(FlowIdentity("b", "u")) == pytest.approx(10, abs=2)
    assert outputs.predict(FlowIdentity("a", "v")) == pytest.approx(500, rel=0.01)
    assert len(outputs) == 3


def test_the_flow_that_answered_longest_ago_is_forgotten_first() -> None:
    outputs = OutputPredictor()
    old, steady = FlowIdentity("old"), FlowIdentity("steady")
    for flow in (steady, old):
        for _ in range(60):
            outputs.learn(flow, 5000)
    outputs.learn(steady, 5000)
    for number in range(FLOWS_MAX - 1):
        outputs.learn(FlowIdentity("k", f"u{number}"), FIRST)
    assert len(outputs) == FLOWS_MAX
    assert outputs.predict(steady) > 4900
    assert outputs.predict(old) < 4900  # the prediction for all flows


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 100_000)), max_size=50))
def test_a_prediction_is_within_what_was_seen(answers: list[tuple[int, int]]) -> None:
    outputs = OutputPredictor()
    seen = [FIRST]
    for number, output in answers:
        outputs.learn(FlowIdentity("k", str(number)), output)
        seen.append(output)
        for each in range(7):
            found = outputs.predict(FlowIdentity("k", str(each)))
            assert min(seen) - 1 <= found <= max(seen)


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
    assert outputs.predict(short) < 2100  # one answer does not change the prediction fully


def test_names_cost_no_memory_without_end() -> None:
    outputs = OutputPredictor()
    for number in range(3 * FLOWS_MAX):
        outputs.learn(FlowIdentity("k", f"u{number}"), 5)
        outputs.learn(FlowIdentity("k", "steady"), 700)
    assert len(outputs) == FLOWS_MAX
    assert outputs.predict(FlowIdentity("k", "steady")) > 650


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


@pytest.mark.parametrize(
    ("choices", "limit", "expected"),
    [(1, -1, 40), (4, -1, 160), (4, 10, 40), (1024, 2**31 - 1, 40_960), (4096, -1, MOST_PREDICTED)],
)
def test_each_choice_is_predicted_like_one_answer(choices: int, limit: int, expected: int) -> None:
    """A large limit of output tokens predicts no more than the flow's answers have."""
    world = World([Spot("a", slots=1, limit=1)], config())
    world.come(key="k", tokens=100, output=1000)
    for _ in range(60):
        world.queue._outputs.learn(FlowIdentity("k", ""), 40)
    ticket = make_ticket(key="k", tokens=100, output_limit=limit, arrival=world.now)
    ticket.view.choices = choices
    world.offer(ticket)
    assert ticket.view.output_tokens == pytest.approx(expected, rel=0.03)


def test_an_answer_with_several_choices_is_learned_as_the_length_of_one() -> None:
    world = World([Spot("a")], config())
    for _ in range(30):
        ticket = make_ticket(key="k", tokens=100, output=1, arrival=world.now)
        ticket.view.choices = 8
        world.truth[ticket] = 800
        world.offer(ticket)
        world.run(30.0)
    assert len(world.done) == 30
    assert world.queue.expected_output(FlowIdentity("k", "")) == pytest.approx(100, rel=0.02)


def test_no_output_is_predicted_for_a_request_that_does_not_decode() -> None:
    world = World([Spot("a", slots=1, limit=1)], config())
    world.come(tokens=100, output=100)
    ticket = make_ticket(tokens=100, arrival=world.now)
    ticket.view.decodes = False
    world.offer(ticket)
    assert ticket.view.output_tokens == 0
