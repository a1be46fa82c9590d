"""When a first token is due: by its SLO, or by a deadline that stays within the class."""

from math import inf

import pytest
from hypothesis import given, strategies as st

from policies.queueing.deadlines import due
from tests.policies.queueing.helpers import ticket
from tests.tickets import SLOS

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
    assert due(made) == pytest.approx(NOW + due_s)


@pytest.mark.parametrize(
    ("slo_s", "deadline_s", "due_s"),
    [
        (0.75, inf, 0.75),
        (5.0, inf, 5.0),
        (5.0, 3.0, 3.0),  # a deadline is earlier than an SLO of its own
        (0.75, 0.1, 0.5),
    ],
)
def test_a_stated_slo_replaces_that_of_the_class(
    slo_s: float, deadline_s: float, due_s: float
) -> None:
    made = ticket(number=2.0, arrival=NOW, deadline=NOW + deadline_s, ttft_slo_s=slo_s)
    assert due(made) == pytest.approx(NOW + due_s)


@given(
    st.floats(0.0, 4.4),
    st.floats(-100.0, 1e4) | st.just(inf),
    st.none() | st.floats(0.001, 1e4),
)
def test_neither_a_deadline_nor_an_slo_jumps_a_class(
    number: float, deadline_s: float, slo_s: float | None
) -> None:
    made = ticket(number=number, arrival=NOW, deadline=NOW + deadline_s, ttft_slo_s=slo_s)
    before = SLOS[made.urgency - 1].ttft_s if made.urgency else 0.0
    assert NOW + before <= due(made) <= NOW + max(SLOS[made.urgency].ttft_s, slo_s or 0.0)
