"""Predicted output length: the first prediction of a flow, and which flows are evicted first."""

import pytest

from policies.queueing.flow_identity import FlowIdentity
from router.admission.output_lengths import FLOWS_MAX, OutputPredictor
from tests.admission.world import Spot, World, config
from tests.tickets import make_ticket

FIRST = 200  # tokens of the first prediction


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


def test_no_output_is_predicted_for_a_request_that_does_not_decode() -> None:
    world = World([Spot("a", slots=1, limit=1)], config())
    world.come(tokens=100, output=100)
    ticket = make_ticket(tokens=100, arrival=world.now)
    ticket.view.decodes = False
    world.offer(ticket)
    assert ticket.view.output_tokens == 0
