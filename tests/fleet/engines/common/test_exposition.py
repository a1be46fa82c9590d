"""The reader of the text format: labels, numbers, rejected values, and its bounds."""

import math

import pytest
from hypothesis import given, strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from router.fleet.engines.common.exposition import (
    KEPT_BYTES,
    LINE_BYTES,
    Reader,
    Samples,
    Wanted,
    read,
)

WANTED = Wanted("queue", "queue_long", "ns:running")


def one(page: str) -> Samples:
    return read(page.encode(), WANTED)


def labels_of(page: str) -> dict[str, str]:
    _, samples = one(page).series("queue")
    assert len(samples) == 1
    assert samples[0].value == 1
    return dict(samples[0].labels)


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        ("queue 1\n", {}),
        ("queue\t1\n", {}),
        ("queue{} 1\n", {}),
        ("queue{ } 1\n", {}),
        ('queue{a="b"} 1\n', {"a": "b"}),
        ('queue{a="b"}1\n', {"a": "b"}),
        ('queue{a="b",} 1\n', {"a": "b"}),
        ('queue{ a = "b" , c = "d" } 1\n', {"a": "b", "c": "d"}),
        ('queue {a="b"} 1\n', None),  # no engine writes such a line
        ('queue{a="}"} 1\n', {"a": "}"}),
        ('queue{a="x,y=\\"z\\"",b="{}"} 1\n', {"a": 'x,y="z"', "b": "{}"}),
        ('queue{a="\\\\",b="\\n"} 1\n', {"a": "\\", "b": "\n"}),
        ('queue{a="\\\\\\"} 2"} 1\n', {"a": '\\"} 2'}),
        ('queue{a="ü",b=""} 1\n', {"a": "ü", "b": ""}),
        ('queue{a="queue 5"} 1\n', {"a": "queue 5"}),
    ],
)
def test_labels(line: str, labels: dict[str, str] | None) -> None:
    if labels is None:
        assert one(line).total("queue") is None
    else:
        assert labels_of(line) == labels


LABEL = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True)


@given(st.dictionaries(LABEL, st.text(), max_size=5))
def test_what_prometheus_client_writes_is_read_back(labels: dict[str, str]) -> None:
    registry = CollectorRegistry()
    gauge = Gauge("queue", 'of "all" {sorts}', list(labels), registry=registry)
    (gauge.labels(**labels) if labels else gauge).set(1)
    assert labels_of(generate_latest(registry).decode()) == labels


@pytest.mark.parametrize("number", ["0", "7", "7.0", "+7", "7e0", "1e3", "0.7e1", "-0", "-0.0"])
def test_numbers(number: str) -> None:
    total = one(f"queue {number}\n").total("queue")
    assert total == float(number)
    assert math.copysign(1, total) == 1


@pytest.mark.parametrize(
    "number",
    [
        *("NaN", "nan", "+Inf", "-Inf", "inf", "-1", "-0.5", "1e999", "", "x", "None", "true"),
        *("1,5", "1_000", "0x10", "٣", '"1"', "1e", "--1", "2.5", "1e300"),
    ],
)
def test_what_is_not_believed(number: str) -> None:
    samples = one(f"queue {number}\n")
    assert samples.total("queue") is None
    assert samples.odd == {"queue"}
    if number not in ("2.5", "1e300"):  # not counts, but valid numbers
        assert samples.moment("queue") is None


def test_one_bad_sample_spoils_the_sum_and_the_largest() -> None:
    page = one('queue{e="0"} 1\nqueue{e="1"} NaN\n')
    assert page.total("queue") is None
    assert page.largest_share(*page.series("queue")) is None
    assert page.total("queue", where=lambda labels: labels.get("e") == "0") == 1


@pytest.mark.parametrize(
    "page",
    [
        'queue{e="0"} 1\nqueue{e="0"} 2\n',  # the same series twice
        "queue 1\nqueue 1\n",
        'queue{e="0"} 1\nqueue{e="1 1\n',  # labels that do not end
        'queue{e="0"} 1\nqueue{e} 1\n',
        'queue{e="0"} 1\nqueue{e="1" f="2"} 1\n',
        'queue{e="0"} 1\nqueue{e="1"} 1',  # the page is cut off
        'queue{e="0"} 1\nqueue{e="1"',
    ],
)
def test_what_else_spoils_a_family(page: str) -> None:
    samples = one(page)
    assert samples.total("queue") is None
    assert samples.odd == {"queue"}


def test_only_whole_names_at_the_beginning_of_a_line() -> None:
    page = one(
        "# queue 1\n#queue 1\n queue 1\nxqueue 1\nqueue_total 1\nqueuex 1\nqueue: 1\n"
        'other{queue="1"} 1\nother 1 queue 1\nqueue\n'
    )
    assert not page
    assert page.odd == set()


def test_a_longer_name_is_another_name() -> None:
    page = one("queue_long 3\nqueue 1\nns:running 2\n")
    assert [page.total(name) for name in ("queue", "queue_long", "ns:running")] == [1, 3, 2]


def test_the_first_name_that_is_there_counts() -> None:
    page = one("queue_long 3\nns:running 2\n")
    assert page.total("queue", "queue_long", "ns:running") == 3
    assert page.total("queue") is None
    assert one("queue NaN\nqueue_long 3\n").total("queue", "queue_long") is None


@pytest.mark.parametrize(("value", "share"), [("0", 0), ("0.5", 0.5), ("1", 1), ("1.0004", 1)])
def test_shares(value: str, share: float) -> None:
    page = one(f"queue {value}\n")
    assert page.largest_share(*page.series("queue")) == share
    assert page.odd == set()


def test_a_share_above_the_whole_is_not_believed() -> None:
    page = one("queue 42\n")
    assert page.largest_share(*page.series("queue")) is None
    assert page.odd == {"queue"}


@pytest.mark.parametrize("size", [1000, 2 * LINE_BYTES])
def test_a_line_without_end_is_dropped_and_the_rest_is_read(size: int) -> None:
    reader = Reader(WANTED)
    assert reader.feed(b"ns:running 1\nqueue{a=")
    for _ in range(2 * LINE_BYTES // size):
        assert reader.feed(b"x" * size)
    assert reader.feed(b"queue_long 9\nqueue_long 3\n")  # the rest of that line is skipped
    samples = reader.end()
    assert samples.total("ns:running") == 1
    assert samples.total("queue_long") == 3
    assert samples.total("queue") is None
    assert samples.odd == {"queue"}


def test_more_wanted_lines_than_anybody_has_are_refused() -> None:
    reader = Reader(WANTED)
    line = b'queue{a="%d"} 1\n'
    fed = 0
    number = 0
    while fed < 2 * KEPT_BYTES:
        piece = b"".join(line % (number + index) for index in range(100))
        number += 100
        fed += len(piece)
        if not reader.feed(piece):
            break
    assert KEPT_BYTES <= fed < KEPT_BYTES + 4000


@given(st.binary(max_size=300), st.integers(1, 40))
def test_any_bytes_in_any_pieces(page: bytes, size: int) -> None:
    reader = Reader(WANTED)
    for at in range(0, len(page), size):
        reader.feed(page[at : at + size])
    whole, pieces = read(page, WANTED), reader.end()
    for name in ("queue", "queue_long", "ns:running"):
        assert whole.series(name) == pieces.series(name)
    assert whole.odd == pieces.odd
