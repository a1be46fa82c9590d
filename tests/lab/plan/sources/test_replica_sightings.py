"""The replicas that a log shows, and their throughput."""

import pytest

from router.lab.plan.observed import Place
from router.lab.plan.sources.replica_sightings import ANSWERS_MIN, Sightings
from router.lab.plan.types_file import parse

PLACE = Place("m")
ONE = parse("types: [{name: gpu, cost: 1, models: {m: {throughput: 9}}}]")
TWO = parse(
    "types: [{name: big, cost: 2, models: {m: {throughput: 9}}}, "
    "{name: small, cost: 1, models: {m: {throughput: 4}}}]"
)
WIDTH_S = 60.0


def seen(spans: dict[str, tuple[int, int]]) -> Sightings:
    """Replicas that answer in each window of their span, the last one included."""
    sightings = Sightings(WIDTH_S, 2.0)
    for name, (first, last) in spans.items():
        for window in range(first, last + 1):
            sightings.add(PLACE, window * WIDTH_S, name, "", 1.0, 0.1)
    return sightings


def test_a_replica_runs_if_it_answered_lately() -> None:
    found = seen({"a": (0, 19), "b": (0, 18), "c": (0, 17)})
    assert found.running(20, ONE) == {PLACE: {"gpu": 2}}


def test_the_last_change_is_a_start_or_a_stop() -> None:
    assert seen({"a": (0, 19), "b": (0, 19)}).unchanged_s(0, 20) == {}
    assert seen({"a": (0, 19), "b": (12, 19)}).unchanged_s(0, 20) == {PLACE: 8 * WIDTH_S}
    assert seen({"a": (0, 19), "b": (0, 9)}).unchanged_s(0, 20) == {PLACE: 10 * WIDTH_S}


def test_the_throughput_is_that_of_the_busiest_windows_within_the_slo() -> None:
    sightings = Sightings(WIDTH_S, 2.0)
    for window, (tokens, ttft_s) in enumerate([(60.0, 0.5), (120.0, 0.5), (600.0, 9.0)]):
        for number in range(2 * ANSWERS_MIN):
            at = window * WIDTH_S
            sightings.add(PLACE, at, f"r{number % 2}", "", tokens / ANSWERS_MIN, ttft_s)
    found = sightings.throughput()["m"]
    assert found.tokens_per_s == pytest.approx(120.0 / WIDTH_S)  # of each of the two replicas
    assert (found.windows, found.busiest) == (2, 2 * ANSWERS_MIN)


@pytest.mark.parametrize(
    ("ttft_s", "waited", "tokens", "was_full"),
    [
        (0.5, False, 200.0, False),  # an idle fleet
        (9.0, False, 200.0, True),  # more requests than the SLO allows
        (9.0, False, 50.0, False),  # slow for another reason
        (0.5, True, 200.0, True),  # requests waited for room
    ],
)
def test_a_busy_window_shows_whether_the_replicas_were_full(
    ttft_s: float, waited: bool, tokens: float, was_full: bool
) -> None:
    sightings = Sightings(WIDTH_S, 2.0)
    for number in range(2 * ANSWERS_MIN):
        is_late = number % 10 == 0
        sightings.add(PLACE, 0.0, "a", "", 100.0 / ANSWERS_MIN, 0.5)
        late_s = ttft_s if is_late else 0.5
        share = tokens / (2 * ANSWERS_MIN)
        sightings.add(PLACE, WIDTH_S, "a", "", share, late_s, waited=waited and is_late)
    assert sightings.throughput()["m"].was_full is was_full


def test_running_replicas_are_counted_by_type() -> None:
    sightings = Sightings(WIDTH_S, 2.0)
    kinds = {"a": "big", "b": "big", "c": "small", "d": "", "e": "huge"}
    for name, kind in kinds.items():
        sightings.add(PLACE, 0.0, name, kind, 1.0, 0.1)
    assert sightings.running(1, TWO) == {PLACE: {"big": 2, "small": 1}}
    assert sightings.unknown(1, TWO) == ["d", "e"]
    assert sightings.unknown(20, TWO) == [], "they run no more"
    assert sightings.unknown(1, ONE) == ["a", "b", "c", "e"]


def test_windows_with_few_answers_measure_nothing() -> None:
    assert seen({"a": (0, 19)}).throughput() == {}
