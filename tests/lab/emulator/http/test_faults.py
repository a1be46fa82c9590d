"""Faults as text, as JSON and as random draws."""

import pytest

from router.lab.emulator.http.faults import NONE, FaultError, FaultPlan, Faults, from_json, parse


def test_text_and_json_mean_the_same() -> None:
    written = parse("status=503; retry_after_s = 2;probability=0.5;")
    assert written == Faults(status=503, retry_after_s=2, probability=0.5)
    assert from_json(b'{"status":503,"retry_after_s":2,"probability":0.5}') == written
    assert parse("reset;hang") == Faults(reset=True, hang=True)
    assert parse("") == NONE


@pytest.mark.parametrize(
    "text",
    ["resett", "status=many", "probability=2", "slow=0", "slow=nan", "delay_s=-1", "delay_s=inf",
     "status=99", "die_after=x", "health=1000", "straggle=0.5", "straggle=nan", "straggle=inf"],
)  # fmt: skip
def test_what_is_not_understood_is_said(text: str) -> None:
    with pytest.raises(FaultError):
        parse(text)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"\xff", b'{"hangs":true}', b"[" * 100_000])
def test_json_that_is_not_understood(raw: bytes) -> None:
    with pytest.raises(FaultError):
        from_json(raw)


def test_a_header_goes_before_what_holds_for_all_and_may_spare_a_replica() -> None:
    plan = FaultPlan("emulated-1")
    plan.set(Faults(status=500))
    assert plan.roll().status == 500
    assert plan.roll("reset") == Faults(reset=True)
    assert plan.roll("reset; replica=emulated-1").reset
    assert plan.roll("reset; replica=emulated-0") == NONE


@pytest.mark.parametrize("header", ["slow=3", "freeze", "health=500"])
def test_a_header_cannot_concern_the_whole_engine(header: str) -> None:
    with pytest.raises(FaultError, match="whole engine"):
        FaultPlan("emulated-0").roll(header)


def test_faults_for_another_replica_change_nothing() -> None:
    plan = FaultPlan("emulated-1")
    assert not plan.set(Faults(status=500, replica="emulated-0"))
    assert plan.roll() == NONE
    assert plan.set(Faults(status=500, replica="emulated-1"))


def test_probability_is_kept_and_repeats_for_a_seed() -> None:
    def rolls(seed: int) -> list[bool]:
        plan = FaultPlan("emulated-0", seed)
        plan.set(Faults(reset=True, probability=0.2))
        return [plan.roll().reset for _ in range(2000)]

    assert rolls(1) == rolls(1) != rolls(2)
    assert 300 < sum(rolls(1)) < 500
