"""Predicted output: what a flow begins with, and which flows are forgotten first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.queueing.flow_identity import FlowIdentity
from router.admission.output_lengths import FLOWS_MAX, OutputPredictor

FIRST = 200  # tokens


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
    outputs.learn(new, 0)  # it begins there, too
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
    assert outputs.predict(old) < 4900  # what all flows are predicted


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
