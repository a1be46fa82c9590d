"""A file as traffic: its format, the selected part, and equal results for every iteration."""

from __future__ import annotations

import gzip
import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from router.lab.simulator.traffic import HasProgress, TraceError, Traffic
from router.lab.traces import FORMATS, open_trace
from tests.lab.traces.helpers import (
    AZURE,
    DATA,
    MOONCAKE,
    SAMPLES,
    json_lines,
    mooncake_row,
    opened,
    read,
    told,
)


@pytest.mark.parametrize(("name", "format"), SAMPLES.items())
def test_every_sample_is_known_by_its_first_line(name: str, format: str) -> None:
    trace = open_trace(DATA / name)
    assert trace.format == format
    assert trace.name == name
    found = list(trace)
    assert found
    assert [a.number for a in found] == list(range(len(found)))
    times = [a.at for a in found]
    assert times[0] == 0.0
    assert times == sorted(times)
    assert all(len(a.blocks) * trace.block_tokens <= a.prompt_tokens for a in found)
    assert list(trace.follow(found[0], 1.0)) == []


def test_all_formats_have_a_sample() -> None:
    assert set(FORMATS) == set(SAMPLES.values())


@pytest.mark.parametrize("name", SAMPLES)
def test_every_pass_gives_the_same_requests_also_from_gzip(name: str, tmp_path: Path) -> None:
    trace = open_trace(DATA / name)
    first = [told(a) for a in trace]
    assert [told(a) for a in trace] == first
    packed = tmp_path / "packed"
    with (DATA / name).open("rb") as source, gzip.open(packed, "wb") as out:
        shutil.copyfileobj(source, out)
    assert [told(a) for a in open_trace(packed)] == first


def test_passes_may_overlap() -> None:
    trace = open_trace(AZURE)
    one, other = iter(trace), iter(trace)
    assert [told(next(one)), told(next(other))] == [told(next(iter(trace)))] * 2
    assert told(next(one)) == told(next(other))


def test_a_trace_is_traffic_that_knows_how_far_it_is() -> None:
    trace = open_trace(AZURE)
    as_traffic: Traffic = trace
    assert as_traffic.block_tokens == 512
    assert isinstance(trace, HasProgress)
    size = AZURE.stat().st_size
    assert trace.position() == (0, size)
    assert trace.share() == 0.0
    assert sum(1 for _ in trace) == 400
    assert trace.position() == (size, size)
    assert trace.share() == 1.0


def test_a_pass_that_is_given_up_closes_its_file() -> None:
    passing: Iterator[Any] = iter(open_trace(AZURE))
    next(passing)
    del passing  # an open file would be a ResourceWarning, which is an error here


def test_a_file_of_an_unknown_format_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        opened(tmp_path, "time;tokens\n1;2\n")
    assert caught.value.line == 1
    for what in (*FORMATS, "ContextTokens", "hash_ids", "time;tokens"):
        assert what in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"\n\n \n", b"\xef\xbb\xbf"], ids=["nothing", "blanks", "mark"]
)
def test_an_empty_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(TraceError, match="empty file"):
        opened(tmp_path, content)


def test_what_is_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="not a regular file"):
        open_trace(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_trace(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "options",
    [
        {"format": "mooncak"},
        {"block_tokens": 0},
        {"limit": 0},
        {"held_rows": 0},
        {"output_tokens": 0},
        {"speedup": 0.0},
        {"speedup": float("nan")},
        {"window_s": -1.0},
        {"slot_s": -1.0},
        {"since_s": float("nan")},
        {"since_s": 10.0, "until_s": 10.0},
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        open_trace(AZURE, **options)


def test_a_part_of_a_trace_begins_at_zero() -> None:
    times = [a.at for a in open_trace(AZURE)]
    wanted = [at for at in times if 30.0 <= at < 60.0]
    part = list(open_trace(AZURE, since_s=30.0, until_s=60.0))
    assert wanted
    assert [a.at for a in part] == [at - 30.0 for at in wanted]
    assert [a.number for a in part] == list(range(len(wanted)))


def test_limit_and_speedup() -> None:
    times = [a.at for a in open_trace(AZURE, limit=7)]
    assert len(times) == 7
    assert [a.at for a in open_trace(AZURE, limit=7, speedup=2.0)] == [at / 2.0 for at in times]


def test_one_model_of_several(tmp_path: Path) -> None:
    row = {"id": "a", "kind": "chat", "prompt_tokens": 9, "output_tokens": 3}
    log = json_lines(*(row | {"ts": 9.0 * n, "model": m} for n, m in enumerate("abba")))
    found = list(opened(tmp_path, log, model="b"))
    assert [(a.model, a.at) for a in found] == [("b", 9.0), ("b", 18.0)]


@pytest.mark.parametrize("options", [{"model": "none such"}, {"since_s": 1e6}], ids=str)
def test_a_part_with_nothing_in_it_is_an_error(options: dict[str, Any]) -> None:
    with pytest.raises(TraceError, match="no request in the selected time"):
        list(open_trace(MOONCAKE, **options))


def test_the_head_is_read_when_a_trace_is_opened(tmp_path: Path) -> None:
    rows = [mooncake_row(i) for i in range(10)]
    del rows[6]["output_length"]
    with pytest.raises(TraceError) as caught:
        opened(tmp_path, json_lines(*rows))
    assert caught.value.line == 7


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    def peak(rows: int) -> int:
        content = json_lines(*(mooncake_row(250 * i, 600) for i in range(rows)))
        trace = opened(tmp_path, content)
        del content
        tracemalloc.start()
        try:
            assert sum(1 for _ in trace) == rows
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few = peak(2_000)
    assert peak(20_000) < few + 50_000
    assert read(tmp_path, json_lines(mooncake_row()))  # measuring ends, but the reader continues
