"""The SLOs of a request: of its class, of its key, or stated by the client within its class."""

import pytest
from hypothesis import given, strategies as st

from policies.facts import RequestView
from router.config.keys import KeyLine
from router.config.model import Classes, ClassSettings, HighClass
from router.core.urgency import BATCH, CLASSES, CRITICAL, HIGH, NORMAL
from router.dispatch.slos import class_slos
from router.intake.keys import Key

SLOS = class_slos(Classes())


def stated(
    urgency: int, ttft_s: float = 0.0, tpot_s: float = 0.0, key: Key | None = None
) -> RequestView:
    view = RequestView()
    SLOS[urgency].fill(view, 7.0)
    SLOS[urgency].state(view, key, ttft_s, tpot_s)
    return view


def key(**slos: float) -> Key:
    return Key(KeyLine(name="acme", hash="", **slos))  # type: ignore[arg-type]


def slos_of(view: RequestView) -> tuple[float, float, float]:
    return view.ttft_slo_s, view.tpot_slo_s, view.ttft_slo_min_s


@pytest.mark.parametrize("urgency", range(len(CLASSES)))
def test_without_a_stated_slo_that_of_the_class_applies(urgency: int) -> None:
    rules = list(Classes().by_name.values())
    view = stated(urgency)
    least = rules[urgency - 1].ttft_slo_s if urgency else 0.0
    assert slos_of(view) == (rules[urgency].ttft_slo_s, rules[urgency].tpot_slo_s, least)
    assert (view.urgency, view.worth, view.arrived) == (urgency, rules[urgency].weight, 7.0)


def test_the_settings_of_classes_are_used() -> None:
    high = HighClass(ttft_slo_s=0.3, tpot_slo_s=0.06, weight=9.0)
    normal = ClassSettings(ttft_slo_s=3.0, tpot_slo_s=0.3, weight=5.0)
    slo = class_slos(Classes(high=high, normal=normal))[NORMAL]
    assert (slo.ttft_s, slo.tpot_s, slo.worth) == (3.0, 0.3, 5.0)
    assert (slo.ttft_min_s, slo.tpot_min_s) == (0.3, 0.06)


@pytest.mark.parametrize(
    ("urgency", "ttft_s", "tpot_s", "found"),
    [
        (NORMAL, 1.0, 0.07, (1.0, 0.07)),
        (NORMAL, 0.1, 0.01, (0.5, 0.05)),  # those of class high
        (NORMAL, 9.0, 0.9, (9.0, 0.9)),  # looser than the class
        (NORMAL, 1.0, 0.0, (1.0, 0.1)),
        (NORMAL, 0.0, 0.07, (2.0, 0.07)),
        (CRITICAL, 0.001, 0.002, (0.001, 0.002)),  # no class is more urgent
        (BATCH, 0.001, 0.001, (10.0, 0.2)),
    ],
)
def test_a_client_states_slos_within_its_class(
    urgency: int, ttft_s: float, tpot_s: float, found: tuple[float, float]
) -> None:
    assert slos_of(stated(urgency, ttft_s, tpot_s))[:2] == found


def test_the_slos_of_a_key_replace_those_of_the_class_and_bound_its_clients() -> None:
    quick = key(ttft_slo_ms=100.0, tpot_slo_ms=20.0)
    assert slos_of(stated(NORMAL, key=quick)) == (0.1, 0.02, 0.1)
    assert slos_of(stated(NORMAL, 0.05, 0.01, quick)) == (0.1, 0.02, 0.1)
    assert slos_of(stated(NORMAL, 0.3, 0.03, quick)) == (0.3, 0.03, 0.1)
    slow = key(ttft_slo_ms=5000.0)
    assert slos_of(stated(NORMAL, 1.0, 0.01, slow)) == (5.0, 0.05, 5.0)


def test_a_client_cannot_change_the_usual_slo() -> None:
    slow, quick = key(ttft_slo_ms=5000.0), key(ttft_slo_ms=100.0)
    for ttft_s in (0.0, 0.1, 9.0):
        assert stated(NORMAL, ttft_s).ttft_slo_usual_s == 2.0
        assert stated(NORMAL, ttft_s, key=slow).ttft_slo_usual_s == 5.0
        assert stated(NORMAL, ttft_s, key=quick).ttft_slo_usual_s == 0.1
        assert stated(BATCH, ttft_s, key=quick).ttft_slo_usual_s == 600.0


def test_a_key_without_slos_changes_nothing() -> None:
    assert slos_of(stated(NORMAL, 0.1, key=key())) == slos_of(stated(NORMAL, 0.1))


def test_the_slos_of_a_key_are_not_for_its_batch_requests() -> None:
    quick = key(ttft_slo_ms=100.0, tpot_slo_ms=20.0)
    assert slos_of(stated(BATCH, key=quick)) == slos_of(stated(BATCH))
    assert slos_of(stated(BATCH, 0.1, 0.01, quick)) == slos_of(stated(BATCH, 0.1, 0.01))


@given(st.integers(HIGH, BATCH), st.floats(0.0, 1e6), st.floats(0.0, 1e6))
def test_no_client_gets_an_slo_tighter_than_the_next_class(
    urgency: int, ttft_s: float, tpot_s: float
) -> None:
    view, above = stated(urgency, ttft_s, tpot_s), SLOS[urgency - 1]
    assert view.ttft_slo_s >= view.ttft_slo_min_s == above.ttft_s
    assert view.tpot_slo_s >= above.tpot_s
