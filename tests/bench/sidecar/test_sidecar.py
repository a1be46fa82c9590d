"""`hedgerow bench sidecar`: setups, dealt requests, figures, the table, and short simulations."""

from math import isclose
from statistics import fmean

import pytest

from bench.priority.http import stage as texts
from bench.priority.traffic import CLASSES
from bench.sidecar.figures import HIGH_S, Counted, Figures, Setup
from bench.sidecar.http.load import dealt
from bench.sidecar.simulated import Length, Task
from tests.addons.needed import needs

SHORT = Length(warm_s=10.0, measured_s=15.0, seeds=1)


def counted() -> Counted:
    """Two requests of each class, before and in a window from 5 to 15 s."""
    seen = Counted(5.0, 15.0)
    for name in CLASSES:
        seen.add(name, "a", 1.0, 2.0, 9.0, 100, 10)
        seen.add(name, "a", 9.0, 12.0, 0.4, 100, 10)
    return seen


# -- setups ---------------------------------------------------------------------------------------


def test_requests_are_dealt_to_all_routers_and_none_is_lost() -> None:
    script = texts.script(1, texts.Size(1.0, 4.0))
    parts = dealt(script, 4, 1)
    assert sorted(one.at for part in parts for one in part.conversations) == [
        one.at for one in script.conversations
    ]
    sizes = [len(part.conversations) for part in parts]
    assert min(sizes) > 0.5 * max(sizes)
    assert dealt(script, 1, 1) == [script]


# -- figures --------------------------------------------------------------------------------------


def test_requests_of_the_warm_up_do_not_count() -> None:
    found = counted().figures(0.5)
    assert found.ttft_mean_s == dict.fromkeys(CLASSES, 0.4)
    assert (found.in_slo, found.hit_rate, found.errors) == (1.0, 0.5, 0)
    assert found.tokens_s == 40 / 10.0


def test_a_failed_request_is_the_slowest_one() -> None:
    seen = counted()
    seen.add("high", "b", 9.0, 14.0, HIGH_S + 0.1, 100, 10)
    seen.add("high", "b", 9.0, 9.1, None, 100, 0)
    found = seen.figures(0.0)
    assert isclose(found.ttft_mean_s["high"], (0.4 + 2 * (HIGH_S + 0.1)) / 3)
    assert (found.in_slo, found.errors) == (1 / 3, 1)


def test_fairness_is_that_of_the_tenants_of_class_batch() -> None:
    seen = counted()  # 110 tokens for tenant a
    seen.add("low", "b", 9.0, 12.0, 0.4, 5000, 10)
    assert seen.figures(0.0).jain == 1.0
    seen.add("batch", "b", 9.0, 12.0, 0.4, 320, 10)
    assert isclose(seen.figures(0.0).jain, (110 + 330) ** 2 / (2 * (110**2 + 330**2)))


# -- the table ------------------------------------------------------------------------------------


# -- short simulations ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def simulated() -> dict[Setup, Figures]:
    wanted = (Setup(1), Setup(4), Setup(4, is_exact=True))
    return {setup: Task(setup, 1, SHORT).run() for setup in wanted}


@needs("kv_events")
def test_urgent_requests_do_not_wait_for_slots_that_other_routers_fill(
    simulated: dict[Setup, Figures],
) -> None:
    assert [seen.errors for seen in simulated.values()] == [0, 0, 0]
    # If they do, 41 % of those of four routers are in time, and with KV events 46 %. A run has
    # about 40 urgent requests, so single runs range from 49 to 81 %.
    for setup in (Setup(4), Setup(4, is_exact=True)):
        others = [Task(setup, seed, SHORT).run() for seed in (2, 3, 4)]
        assert fmean(seen.in_slo for seen in (simulated[setup], *others)) > 0.6


@needs("kv_events")
def test_routers_with_kv_events_find_more_in_the_caches(simulated: dict[Setup, Figures]) -> None:
    alone, blind, exact = (
        simulated[one].hit_rate for one in (Setup(1), Setup(4), Setup(4, is_exact=True))
    )
    assert blind < exact - 0.05 and exact < alone + 0.05
