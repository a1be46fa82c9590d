"""When a first token is due: by class, or by a deadline that stays within the class."""

from __future__ import annotations

from math import inf, nan
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.queueing.contract import PolicyConfigError
from policies.queueing.slos import SLO_S, PerClass, check_per_class, check_width, due
from tests.policies.queueing.helpers import ticket

NOW = 1000.0


@pytest.mark.parametrize(
    ("number", "deadline_s", "due_s"),
    [
        (2.0, inf, 2.0),
        (4.0, inf, 600.0),
        (2.0, 3.0, 2.0),  # a deadline later than that of its class: the class counts
        (2.0, 2.0, 2.0),
        (2.0, 1.0, 1.0),
        (2.0, 0.5, 0.5),
        (2.0, 0.1, 0.5),  # no earlier than the next more urgent class
        (2.0, -5.0, 0.5),
        (4.0, 1.0, 10.0),
        (0.0, 0.1, 0.1),  # no class is more urgent
        (0.0, -5.0, 0.0),
        (1.0, 0.1, 0.25),
    ],
)
def test_when_a_first_token_is_due(number: float, deadline_s: float, due_s: float) -> None:
    made = ticket(number=number, arrival=NOW, deadline=NOW + deadline_s)
    assert due(made, SLO_S) == pytest.approx(NOW + due_s)


def test_times_that_do_not_rise_from_class_to_class() -> None:
    """A less urgent class may have a shorter time: the shorter time then bounds the deadline."""
    odd = (5.0, 4.0, 3.0, 2.0, 1.0)
    made = ticket(number=2.0, arrival=NOW, deadline=NOW + 0.5)
    assert due(made, odd) == NOW + 3.0


@given(st.floats(0.0, 4.4), st.floats(-100.0, 1e4) | st.just(inf))
def test_a_deadline_never_jumps_a_class_or_delays(number: float, deadline_s: float) -> None:
    made = ticket(number=number, arrival=NOW, deadline=NOW + deadline_s)
    urgency = made.urgency
    before = SLO_S[urgency - 1] if urgency else 0.0
    assert NOW + before <= due(made, SLO_S) <= NOW + SLO_S[urgency]


def per_class(values: list[float]) -> PerClass:
    return cast(PerClass, tuple(values))


@pytest.mark.parametrize("value", [0.0, -1.0, inf, nan])
@pytest.mark.parametrize("place", range(5))
def test_a_value_per_class_is_above_0_and_finite(value: float, place: int) -> None:
    values = [1.0] * 5
    check_per_class("slo_s", per_class(values))
    values[place] = value
    with pytest.raises(PolicyConfigError, match="slo_s"):
        check_per_class("slo_s", per_class(values))


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_width_is_a_share(share: float) -> None:
    check_width(share)
    for wrong in (-share - 0.1, share + 1.1, nan, inf):
        with pytest.raises(PolicyConfigError, match="width"):
            check_width(wrong)
