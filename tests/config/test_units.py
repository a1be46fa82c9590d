"""Durations and sizes: accepted and refused texts, and a round trip of each value."""

import pytest
from hypothesis import given, strategies as st

from router.config.load import parse
from router.config.units import DURATION, SIZE, amount_text, seconds, size_bytes
from router.core.errors import ConfigError

REPLICA = "replicas: [http://gpu:8000]\n"


@pytest.mark.parametrize(
    ("text", "amount_s"),
    [
        ("250ms", 0.25),
        ("30s", 30.0),
        ("10m", 600.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        ("1.5h", 5400.0),
        ("7d", 604_800.0),
        ("2", 2.0),
    ],
)
def test_a_duration(text: str, amount_s: float) -> None:
    assert seconds(text) == pytest.approx(amount_s)


@pytest.mark.parametrize(
    "text", ["", "s", "-1s", "1x", "1s2", "1e3s", "ten", "1h,30m", "\uff11s", "1_0s"]
)
def test_an_invalid_duration_is_none(text: str) -> None:
    assert seconds(text) is None


@pytest.mark.parametrize(
    ("text", "amount"),
    [("64KiB", 65536), ("1.5GiB", 3 << 29), ("1 MB", 10**6), ("12B", 12), ("12", 12)],
)
def test_a_size(text: str, amount: int) -> None:
    assert size_bytes(text) == amount


@pytest.mark.parametrize("text", ["", "MiB", "-1B", "0.5B", "1 mib", "1K", "1MiB2"])
def test_an_invalid_size_is_none(text: str) -> None:
    assert size_bytes(text) is None


@given(st.integers(0, 10**13))
def test_the_text_of_a_size_reads_back(amount: int) -> None:
    assert size_bytes(amount_text(amount, SIZE)) == amount


@given(st.integers(0, 10**10))
def test_the_text_of_a_duration_reads_back(milliseconds: int) -> None:
    amount_s = milliseconds / 1000.0
    assert seconds(amount_text(amount_s, DURATION)) == pytest.approx(amount_s, rel=1e-12)


def test_units_in_a_file() -> None:
    config = parse(f"{REPLICA}timeouts: {{head: 500ms, whole: 1h}}\nlimits: {{body: 1MiB}}\n")
    assert config.timeouts.head_s == 0.5
    assert config.timeouts.whole_s == 3600.0
    assert config.limits.body == 1 << 20
    assert parse(f"{REPLICA}timeouts: {{head: 0.5, total: 0}}").timeouts.head_s == 0.5


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("timeouts: {head: soon}", "timeouts.head: must be a duration such as 500ms"),
        ("timeouts: {head: 0s}", "timeouts.head: must be above 0s"),
        ("timeouts: {head_s: 1}", "timeouts.head_s: unknown key; it is now head"),
        (
            "queue: {aging: 1}",
            "queue.aging: unknown key; it is now queue.batch_becomes_normal_after",
        ),
        ("limits: {body: 1 meter}", "limits.body: must be a size such as 512KiB"),
        ("limits: {body: 0B}", "limits.body: must be at least 1B"),
        ("limits: {header_count: 10s}", "limits.header_count: must be a whole number"),
    ],
)
def test_an_invalid_unit_is_reported(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(REPLICA + text)
    assert str(caught.value.problems[0]).startswith(problem)
