"""The hedging policies: the time of a copy, whether a copy pays, and the policies' construction."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from policies.hedging import contract
from policies.hedging.contract import (
    Delay,
    HedgingPolicy,
    PolicyConfigError,
    make_policy,
    policy_names,
)
from policies.hedging.curve import Curve, curve_of

BULK = [(round(0.8 + 0.01 * n, 2), 1) for n in range(41)]  # ratios from 0.8 to 1.2


def stragglers(share: float, bulk: int = 1900) -> Curve:
    """Most samples about 1, and a share of all at 9 to 11."""
    late = round(bulk * share / (1.0 - share))
    slow = [(9.0 + n / 10, late // 20) for n in range(20)]
    return curve_of([*((v, bulk // len(BULK)) for v, _ in BULK), *slow])


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    policy_names()
    monkeypatch.setattr(contract.HEDGING, "classes", dict(contract.HEDGING.classes))
    yield


def delay(name: str, curve: Curve, quantile: float = 0.75, **options: float) -> Delay | None:
    return make_policy(name, options).delay(curve, quantile)


@pytest.mark.parametrize("name", policy_names())
@pytest.mark.parametrize("curve", [curve_of([]), curve_of([(1.0, 5)]), stragglers(0.05)])
@pytest.mark.parametrize("quantile", [0.5, 0.75, 0.999])
def test_the_contract(name: str, curve: Curve, quantile: float) -> None:
    """A delay is None or not negative, repeatable, and uses no global random generator.

    If a copy of some length pays, a shorter one pays as well.
    """
    before = random.getstate()
    policy = make_policy(name)
    found = policy.delay(curve, quantile)
    assert found == make_policy(name).delay(curve, quantile)
    assert found is None or (found.ratio >= 0.0 and found.seconds >= 0.0)
    assert found is None or not policy.idle
    asked = [(waited, 0.5, backup) for waited in (0.1, 1.0, 9.0) for backup in (0.1, 0.4, 9.0)]
    said = [policy.pays(*question, curve) for question in asked]
    assert said == [make_policy(name).pays(*question, curve) for question in asked]
    for shorter, longer in ((said[n], said[n + 1]) for n in (0, 1, 3, 4, 6, 7)):
        assert type(shorter) is bool and shorter >= longer
    assert 0.0 <= policy.most_utilised() <= 1.0
    assert random.getstate() == before


def test_off_never() -> None:
    assert delay("off", stragglers(0.05)) is None
    assert make_policy("off").idle


def test_fixed_needs_no_curve() -> None:
    assert delay("fixed", curve_of([]), delay_s=0.4) == Delay(0.0, 0.4)


def test_immediate_is_for_critical_ones_in_an_idle_fleet() -> None:
    assert delay("immediate", curve_of([])) == Delay(0.0, 0.0)
    assert make_policy("immediate").only == {"critical"}
    assert make_policy("immediate", {"utilisation": 0.2}).most_utilised() == 0.2


def test_quantile_spends_what_the_budget_pays() -> None:
    curve = stragglers(0.05)
    for quantile in (0.5, 0.75, 0.9):
        found = delay("quantile", curve, quantile)
        assert found is not None
        assert curve.survival(found.ratio) == pytest.approx(1.0 - quantile, abs=0.03)


@pytest.mark.parametrize("share", [0.01, 0.02, 0.05, 0.1])
@pytest.mark.parametrize("quantile", [0.5, 0.75, 0.95, 0.99])
def test_adaptive_asks_where_the_bulk_ends(share: float, quantile: float) -> None:
    """Holds whether the budget pays for all stragglers or for a part of them."""
    found = delay("adaptive", stragglers(share), quantile)
    assert found is not None
    assert 1.15 <= found.ratio <= 1.21


def test_adaptive_without_a_tail_asks_behind_everything_seen() -> None:
    found = delay("adaptive", curve_of(BULK))
    assert found is not None
    assert found.ratio == 1.2


def test_adaptive_compares_what_remains_with_the_copy() -> None:
    curve, policy = stragglers(0.05), make_policy("adaptive", {"margin": 0.5})
    # Late by 1.5: a straggler, which needs 8.5 more on average, of 0.2 s each.
    assert policy.pays(0.3, 0.2, 0.2, curve)
    assert policy.pays(0.3, 0.2, 1.1, curve)
    assert not policy.pays(0.3, 0.2, 1.2, curve)  # nothing is cached at the copy's replica
    assert not policy.pays(0.2, 0.2, 0.5, curve)  # the attempt is hardly late
    assert policy.pays(4.0, 0.2, 1.0, curve)  # the attempt is later than any sample


@pytest.mark.parametrize(
    ("name", "options", "option", "message"),
    [
        ("adaptive", {"least_s": -1.0}, "least_s", "least_s must be a number, 0 or more"),
        ("adaptive", {"price": float("nan")}, "price", "price must be a number"),
        ("adaptive", {"margin": float("inf")}, "margin", "margin must be a number"),
        ("quantile", {"least_s": -0.1}, "least_s", "least_s must be a number"),
        ("fixed", {"delay_s": -0.1}, "delay_s", "delay_s must be a number"),
        ("fixed", {"delay": 1}, "delay", r"unknown option of fixed \(known: delay_s\)"),
        ("immediate", {"utilisation": 1.1}, "utilisation", "a share, 0 to 1"),
        ("off", {"delay_s": 1}, "delay_s", "known: none"),
        ("adaptiv", {}, None, r"unknown policy 'adaptiv'; did you mean adaptive\?"),
        ("p2c", {}, None, "unknown policy 'p2c'"),
    ],
)
def test_a_bad_choice_is_refused_by_name(
    name: str, options: dict[str, float], option: str | None, message: str
) -> None:
    with pytest.raises(PolicyConfigError, match=message) as caught:
        make_policy(name, options)
    assert caught.value.option == option


def test_a_third_party_registers_by_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "patient_module.py").write_text(
        "from policies.hedging.contract import Delay, HedgingPolicy, policy\n"
        "@policy('patient')\n"
        "class Patient(HedgingPolicy):\n"
        "    def delay(self, curve, quantile):\n"
        "        return Delay(seconds=60.0)\n"
    )
    info = tmp_path / "patient-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: patient\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[hedgerow.hedging]\npatient = patient_module\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "patient_module", raising=False)
    assert "patient" in policy_names()
    made = make_policy("patient")
    assert isinstance(made, HedgingPolicy)
    assert made.delay(curve_of([]), 0.75) == Delay(seconds=60.0)


def test_two_policies_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two hedging policies are called 'off'"):
        contract.policy("off")(type("Another", (HedgingPolicy,), {}))
