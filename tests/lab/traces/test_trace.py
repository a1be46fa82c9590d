"""An access log as traffic: the selected part, equal results for every iteration, and errors."""

import gzip
import shutil
import tracemalloc
from collections.abc import Iterable, Iterator
from math import ceil
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from router.lab.simulator.traffic import Arrival, HasProgress, TraceError, Traffic
from router.lab.traces import Trace, describe
from router.lab.traces.trace import _Distinct
from tests.lab.traces.helpers import SAMPLE, json_lines, log_row, opened, read, told


def many(count: int = 20, **fields: Any) -> str:
    return json_lines(*(log_row(100.0 + n, **fields) for n in range(count)))


def test_the_sample_is_traffic_that_knows_how_far_it_is() -> None:
    trace = Trace(SAMPLE)
    as_traffic: Traffic = trace
    assert isinstance(trace, HasProgress)
    assert (trace.name, trace.share()) == ("hedgerow.log", 0.0)
    found = list(as_traffic)
    assert [a.number for a in found] == list(range(len(found)))
    times = [a.at for a in found]
    assert times[0] == 0.0 and times == sorted(times)
    assert all(len(a.blocks) * trace.block_tokens <= a.prompt_tokens for a in found)
    assert list(trace.follow(found[0], 1.0)) == []
    assert trace.share() == 1.0


def test_every_pass_gives_the_same_requests_also_from_gzip(tmp_path: Path) -> None:
    trace = Trace(SAMPLE)
    first = [told(a) for a in trace]
    one, other = iter(trace), iter(trace)  # passes may overlap
    assert [told(next(one)), told(next(other))] == [first[0]] * 2
    assert [told(a) for a in trace] == first
    packed = tmp_path / "packed"
    with SAMPLE.open("rb") as source, gzip.open(packed, "wb") as out:
        shutil.copyfileobj(source, out)
    assert [told(a) for a in Trace(packed)] == first


def test_a_pass_that_is_given_up_closes_its_file() -> None:
    passing: Iterator[Any] = iter(Trace(SAMPLE))
    next(passing)
    del passing  # an open file would be a ResourceWarning, which is an error here


def test_what_is_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="not a regular file"):
        Trace(tmp_path)
    with pytest.raises(FileNotFoundError):
        Trace(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "options",
    [
        {"block_tokens": 0},
        {"limit": 0},
        {"speedup": 0.0},
        {"speedup": float("nan")},
        {"until_s": 0.0},
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Trace(SAMPLE, **options)


def test_limit_time_model_and_speedup(tmp_path: Path) -> None:
    log = json_lines(*(log_row(9.0 * n, model=m) for n, m in enumerate("abba")))

    def found(**options: Any) -> list[tuple[str | None, float]]:
        return [(a.model, a.at) for a in opened(tmp_path, log, **options)]

    assert found(limit=2, speedup=2.0) == [("a", 0.0), ("b", 4.5)]
    assert found(until_s=18.0) == [("a", 0.0), ("b", 9.0)]
    assert found(model="b") == [("b", 9.0), ("b", 18.0)]
    with pytest.raises(TraceError, match="no request in the selected time"):
        found(model="none such")


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    def peak(rows: int) -> int:
        content = many(rows)
        trace = opened(tmp_path, content)
        del content
        tracemalloc.start()
        try:
            assert sum(1 for _ in trace) == rows
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few = peak(2_000)  # a window of 900 s holds 900 rows
    assert peak(10_000) < 1.5 * few  # five times the rows


# -- files that are no access log, or are damaged -------------------------------------------------


def log(**wrong: Any) -> str:
    return json_lines(log_row(), log_row(), log_row(**wrong))


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in log_row().items() if key != name}


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("", 1, "empty file"),
        ("\n\n \n", 3, "empty file"),
        ("\ufeff", 1, "empty file"),
        ("time;tokens\n1;2\n", 1, "not an access log of Hedgerow"),
        (json_lines({"timestamp": 0, "input_length": 9}), 1, "ts, id and kind"),
        (log() + "no\n" * 20, 12, "not a JSON object"),
        (json_lines(log_row(), without("ts")), 2, "`ts`"),
        (log(prompt_tokens="many"), 3, "prompt_tokens"),
        (log(prompt_tokens=-4), 3, "is -4"),
        (log(output_tokens=10**9), 3, "output_tokens is 1000000000"),
        (log(blocks="%%%%"), 3, "blocks"),
        (log(blocks="AAAA"), 3, "3 bytes"),
        (log(duration_ms=-5.0), 3, "invalid time"),
        (log() + "{}\n", 4, "`ts`"),
        (log(number=4.5), 3, "number"),
        (log(deadline_ms=-1), 3, "deadline_ms"),
        (log(max_tokens=0), 3, "max_tokens"),
        (log(hedge="maybe"), 3, "hedge"),
        (log(slots=-1), 3, "slots"),
        (log(ttft_ms=-5.0), 3, "ttft_ms"),
        (json_lines(log_row(kind="models")), 1, "nothing to replay"),
        (json_lines(without("output_tokens")), 1, "no answer of known length"),
    ],
)
def test_errors_are_reported_with_their_line(
    tmp_path: Path, content: str, line: int, words: str
) -> None:
    with pytest.raises(TraceError) as caught:
        read(tmp_path, content)
    assert caught.value.line == line
    assert words in caught.value.problem
    assert str(caught.value).startswith(f"{tmp_path / 'trace'}:{line}: ")
    assert len(str(caught.value)) < 1000


@settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(where=st.floats(0.0, 1.0), what=st.binary(min_size=1, max_size=8), keep=st.booleans())
def test_damaged_input_is_read_or_reported(
    tmp_path: Path, where: float, what: bytes, keep: bool
) -> None:
    content = SAMPLE.read_bytes()[:2000]
    at = int(where * len(content))
    damaged = content[:at] + what + content[at + (0 if keep else len(what)) :]
    try:
        found = list(opened(tmp_path, damaged))
    except TraceError as err:
        assert 1 <= err.line <= damaged.count(b"\n") + 1
        return
    times = [a.at for a in found]
    assert times == sorted(times)
    assert all(a.prompt_tokens >= 1 and a.output_tokens >= 0 for a in found)


class Listed:
    """Traffic from a list of arrivals."""

    name = "listed"
    block_tokens = 16

    def __init__(self, arrivals: list[Arrival]) -> None:
        self.arrivals = arrivals

    def __iter__(self) -> Iterator[Arrival]:
        return iter(self.arrivals)

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        return ()


def test_lengths_and_reuse_are_counted_as_by_hand() -> None:
    rng = Random(3)
    now, arrivals = 0.0, []
    for n in range(400):
        now += rng.expovariate(2.0)
        blocks = tuple(range(rng.choice([0, 100]), rng.choice([101, 105, 120])))
        prompt = 16 * len(blocks) + rng.randrange(16) + 1
        arrivals.append(Arrival(n, now, prompt, rng.randrange(1, 500), blocks))
    facts = describe(Listed(arrivals))
    inputs = [a.prompt_tokens for a in arrivals]
    assert (facts.rows, facts.duration_s) == (400, arrivals[-1].at - arrivals[0].at)
    assert facts.rate == pytest.approx(400 / facts.duration_s)
    assert facts.prompt_tokens == pytest.approx(mean(inputs))
    assert facts.output_tokens == pytest.approx(mean(a.output_tokens for a in arrivals))
    seen: set[int] = set()
    hits = 0
    for arrival in arrivals:
        hits += sum(block in seen for block in arrival.blocks)
        seen.update(arrival.blocks)
    assert facts.reuse is not None
    assert facts.reuse.hits == hits
    assert facts.reuse.asked == sum(ceil(prompt / 16) for prompt in inputs)


def test_models_and_notes() -> None:
    arrivals = [Arrival(i, float(i), 1, 1, model=f"m{i}") for i in range(150)]
    models = describe(Listed(arrivals)).models
    assert len(models) == 101  # models beyond a hundred are counted together
    assert (models["m0"], models[""]) == (1, 50)
    assert describe(Trace(SAMPLE)).notes["skipped: refused"] == 1


def test_one_request_and_none() -> None:
    facts = describe(Listed([Arrival(0, 5.0, 10, 0)]))
    assert (facts.rows, facts.duration_s, facts.rate, facts.reuse) == (1, 0.0, 0.0, None)
    with pytest.raises(ValueError, match="no requests"):
        describe(Listed([]))


def test_distinct_blocks_beyond_the_exact_ones_are_estimated() -> None:
    rng = Random(7)
    blocks = [rng.getrandbits(64) for _ in range(100_000)]
    few = _Distinct(100_000)
    many = _Distinct(8_192)
    for i in range(0, 100_000, 10):
        for distinct in (few, many):
            distinct.add(tuple(blocks[i : i + 10]))
            distinct.add(tuple(blocks[i : i + 10]))
    assert few.count() == 100_000
    assert many.count() == pytest.approx(100_000, rel=0.05)  # four standard errors
