"""The ORCA load header: an invalid figure makes its sum unknown, and no bytes raise an error."""

import json

import pytest
from hypothesis import given, strategies as st

from router.fleet.engines.common.orca import read_load_header
from router.fleet.signals import NO_SIGNALS, Signals

WAITING, USAGE = "num_requests_waiting", "kv_cache_usage_perc"


def as_text(*figures: tuple[str, object]) -> bytes:
    return (
        "TEXT " + ", ".join(f"named_metrics.{name}={value}" for name, value in figures)
    ).encode()


def as_json(figures: object) -> bytes:
    return b"JSON " + json.dumps({"named_metrics": figures}).encode()


def test_engines_under_data_parallelism_wait_together_and_the_fullest_cache_counts() -> None:
    found = read_load_header(as_text((WAITING, 2.0), (USAGE, 0.25), (WAITING, 3.0), (USAGE, 0.75)))
    assert found == Signals(waiting=5, kv_usage=0.75)


def test_both_forms_say_the_same() -> None:
    for waiting, usage in ((0, 0.0), (7, 1.0)):
        text = read_load_header(as_text((WAITING, waiting), (USAGE, usage)))
        assert text == read_load_header(as_json({WAITING: waiting, USAGE: usage}))
        assert text == Signals(waiting=waiting, kv_usage=usage)


@pytest.mark.parametrize(
    "bad", ["-1", "nan", "inf", "1.5", "", "x", "1e300", "None", "1_0", "+1", " 1", "\u0661"]
)
def test_one_bad_figure_hides_the_sum_and_is_named(bad: str) -> None:
    odd: set[str] = set()
    found = read_load_header(as_text((WAITING, 1), (WAITING, bad), (USAGE, 0.5)), odd)
    assert found == Signals(waiting=None, kv_usage=0.5)
    assert odd == {"header:" + WAITING}


@pytest.mark.parametrize("bad", ["-0.5", "nan", "1.5", "x", "0_1", "+0.5", "0.\u0665"])
def test_a_share_outside_its_bounds_is_unknown(bad: str) -> None:
    odd: set[str] = set()
    found = read_load_header(as_text((USAGE, 0.5), (USAGE, bad), (WAITING, 1)), odd)
    assert found == Signals(waiting=1, kv_usage=None)
    assert odd == {"header:" + USAGE}


@pytest.mark.parametrize("value", [True, "1", [1], {}, -1])
def test_a_figure_of_another_type_is_unknown(value: object) -> None:
    odd: set[str] = set()
    assert read_load_header(as_json({WAITING: value}), odd) == NO_SIGNALS
    assert odd == {"header:" + WAITING}
    assert read_load_header(as_json({WAITING: None}), odd) == NO_SIGNALS


@pytest.mark.parametrize("figures", [[], "x", None, 1, {}])
def test_a_document_of_another_form_says_nothing(figures: object) -> None:
    odd: set[str] = set()
    assert read_load_header(as_json(figures), odd) == NO_SIGNALS
    assert read_load_header(b"JSON " + json.dumps(figures).encode(), odd) == NO_SIGNALS
    assert odd == set()


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b" ",
        b"TEXT",
        b"JSON",
        b"text " + WAITING.encode() + b"=1",
        b"BIN \x08\x01",
        b"TEXT\xff",
    ],
)
def test_another_format_says_nothing(header: bytes) -> None:
    assert read_load_header(header) == NO_SIGNALS


PIECES = st.sampled_from(
    [b"TEXT ", b"JSON ", WAITING.encode(), USAGE.encode(), b"named_metrics.", b"=", b",", b"1"]
)


@given(st.lists(PIECES | st.binary(max_size=6), max_size=12).map(b"".join))
def test_no_bytes_raise(header: bytes) -> None:
    found = read_load_header(header)
    assert found.waiting is None or found.waiting >= 0
    assert found.kv_usage is None or 0.0 <= found.kv_usage <= 1.0
