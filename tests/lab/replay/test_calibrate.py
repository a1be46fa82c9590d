"""Fits to logs of emulated engines, whose timing coefficients are known and must be found again.

The profile that fills gaps is never the true one here, so that no coefficient is right by chance.
"""

import builtins
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from random import Random

import msgspec
import pytest

from router.lab.emulator.core.engine_core import CoreConfig
from router.lab.emulator.core.timing import PROFILES, Timing
from router.lab.extras import MissingExtra
from router.lab.replay.calibrate import Calibration, CalibrationError, calibrate
from router.lab.replay.calibration.samples import Reservoir
from router.lab.simulator.traffic import TraceError
from router.observe.log.record import Record
from tests.lab.audit.engine_logs import Ask, changed, played, write

TRUE = PROFILES["bloom-176b-a100x8"]
OTHER = PROFILES["fast"]
NAMES = [field.name for field in fields(Timing)]
PREFILL = NAMES[:3]


def asked(
    requests: int = 3000,
    replicas: int = 4,
    quiet: float = 0.3,
    busy: float = 3.0,
    longest: int = 8000,
    seed: int = 1,
) -> list[Ask]:
    """Alternating quiet and busy minutes; `quiet` and `busy`: requests per second."""
    rng = Random(seed)
    found: list[Ask] = []
    at = 0.0
    while len(found) < requests:
        at += rng.expovariate(busy if int(at / 120.0) % 2 else quiet)
        prompt = min(int(rng.lognormvariate(6.5, 1.0)) + 20, longest)
        if rng.random() < 0.15:
            prompt = rng.randint(longest // 4, longest)
        output = max(1, int(rng.lognormvariate(4.3, 0.8)))
        found.append(Ask(at, prompt, output, "t", "", len(found) % replicas))
    return found


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return played(asked(), TRUE, 4)


def fitted(path: Path, records: list[Record], **options: object) -> Calibration:
    options.setdefault("base", OTHER)
    return calibrate(write(path / "access.log", records), **options)  # type: ignore[arg-type]


def off(found: Timing, true: Timing, names: list[str] = NAMES) -> float:
    """The largest relative error of these coefficients."""
    return max(abs(getattr(found, name) / getattr(true, name) - 1.0) for name in names)


def told(found: Calibration, *words: str) -> bool:
    return any(all(word in line for word in words) for line in found.report)


def test_the_coefficients_come_back(tmp_path: Path, records: list[Record]) -> None:
    found = fitted(tmp_path, records)
    assert off(found.timing, TRUE) < 0.10
    assert found.prefill is not None and found.decode is not None
    assert min(found.prefill.r2, found.decode.r2) > 0.95
    assert max(found.prefill.error, found.decode.error) < 0.02
    assert not any([*found.prefill.tied, *found.decode.tied])
    assert found.prefill.samples >= 100 and found.decode.samples >= 1000


def test_stalls_do_not_move_it(tmp_path: Path, records: list[Record]) -> None:
    rng = Random(5)

    def stalled(record: Record) -> Record:
        if rng.random() > 0.05:
            return record
        more = 10_000.0
        return msgspec.structs.replace(
            record,
            ttft_ms=(record.ttft_ms or 0.0) + more,
            duration_ms=record.duration_ms + more,
            attempts=[("r", "primary", "ok", record.duration_ms + more)],
        )

    lines = sorted(changed(records, stalled), key=lambda r: r.ts + r.duration_ms * 1e-3)
    found = fitted(tmp_path, lines)
    assert off(found.timing, TRUE, PREFILL) < 0.10
    assert found.timing.decode_s == pytest.approx(TRUE.decode_s, rel=0.05)


def test_cached_prompts_are_fitted_by_what_was_computed(tmp_path: Path) -> None:
    asks = asked()
    rng = Random(2)
    for ask in asks:
        group, blocks = rng.randrange(5), min(ask.prompt, rng.choice((0, 1600, 4000))) // 16
        ask.blocks = tuple(1000 * group + n for n in range(blocks))
    found = fitted(tmp_path, played(asks, TRUE, 4))
    assert off(found.timing, TRUE) < 0.10


def test_a_borrowed_square_is_within_what_long_prompts_took(tmp_path: Path) -> None:
    # Long prompts come in threes, so none is alone; short ones do not show the quadratic term.
    rng = Random(3)
    asks = [Ask(0.3 * n, rng.randint(50, 600), 60, "t") for n in range(2000)]
    asks += [Ask(7.0 * (n // 3) + 0.01, 40_000 + n, 20, "t") for n in range(250)]
    records = played(asks, OTHER, 1)
    found = fitted(tmp_path, records, base=TRUE)
    assert found.prefill is not None and found.prefill.tied[2]
    borrowed = TRUE.prefill_square_s / TRUE.prefill_token_s * found.timing.prefill_token_s
    assert borrowed * 40_000**2 > 2.0 * OTHER.prefill_alone_s(40_000)  # the test needs this
    assert found.timing.prefill_alone_s(40_000) < 1.3 * OTHER.prefill_alone_s(40_000)


def test_prompts_of_one_length_fit_only_one_time(tmp_path: Path) -> None:
    asks = asked(requests=1500)
    for ask in asks:
        ask.prompt = 1000
    found = fitted(tmp_path, played(asks, TRUE, 4))
    assert found.timing.prefill_alone_s(1000) == pytest.approx(TRUE.prefill_alone_s(1000), rel=0.02)
    assert found.prefill is not None and found.prefill.tied[0]
    assert told(found, "prefill", "does not determine", "ratios of the profile fast")
    assert told(found, "prefill", "a log of streams that arrive at an idle replica, with prompts")
    ratio = found.timing.prefill_s / found.timing.prefill_token_s
    assert ratio == pytest.approx(OTHER.prefill_s / OTHER.prefill_token_s)


def test_without_cached_counts_it_says_so(tmp_path: Path, records: list[Record]) -> None:
    lines = changed(records, lambda r: msgspec.structs.replace(r, cached_tokens=None))
    found = fitted(tmp_path, lines)
    assert told(found, "no counts of cached")
    assert off(found.timing, TRUE) < 0.10  # here nothing was cached
    assert not told(fitted(tmp_path, records), "no counts of cached")


def test_without_output_counts_decode_is_scaled_with_prefill(
    tmp_path: Path, records: list[Record]
) -> None:
    lines = changed(records, lambda r: msgspec.structs.replace(r, output_tokens=None))
    found = fitted(tmp_path, lines, base=PROFILES["realistic"])
    assert found.decode is None
    assert told(found, "decode", "scaled from the profile realistic")
    assert off(found.timing, TRUE, PREFILL) < 0.10
    ratio = found.timing.decode_s / found.timing.prefill_token_s
    realistic = PROFILES["realistic"]
    assert ratio == pytest.approx(realistic.decode_s / realistic.prefill_token_s)


def test_how_full_replicas_were(tmp_path: Path, records: list[Record]) -> None:
    open_ended = fitted(tmp_path, records)
    assert told(open_ended, "no replica was full", f"at least {open_ended.sequences_peak}")
    core = CoreConfig(max_num_seqs=8, num_blocks=40_000, block_size=16, token_events=False)
    asks = [Ask(0.2 * n, 300, 150 + n % 100, "t") for n in range(400)]
    full = fitted(tmp_path, played(asks, PROFILES["realistic"], 1, core))
    assert full.sequences_full == full.sequences_peak == 8
    assert told(full, "full with 8 sequences")


def test_one_model_of_several(tmp_path: Path) -> None:
    other = PROFILES["realistic"]
    asks = asked(seed=1)
    here = played(asks, TRUE, 4)
    there = played([*asked(seed=2)], other, 4)
    there = changed(
        there,
        lambda r: msgspec.structs.replace(r, model="small", replica=f"s{r.replica}", attempts=[]),
    )
    lines = sorted([*here, *there], key=lambda r: r.ts + r.duration_ms * 1e-3)
    assert off(fitted(tmp_path, lines, model="small").timing, other) < 0.10
    assert off(fitted(tmp_path, lines, model="m").timing, TRUE) < 0.10
    mixed = fitted(tmp_path, lines)
    assert told(mixed, "one engine model for", "small")


def test_the_logs_of_two_routers(tmp_path: Path, records: list[Record]) -> None:
    paths = [write(tmp_path / f"{n}.log", records[n::2]) for n in (0, 1)]
    assert off(calibrate(*paths, base=OTHER).timing, TRUE) < 0.10


@pytest.mark.parametrize(
    "change",
    [
        lambda record: msgspec.structs.replace(record, stream=False),
        lambda record: msgspec.structs.replace(record, replica="", reason="replica_reset"),
    ],
)
def test_a_log_that_shows_nothing_is_an_error(
    tmp_path: Path, records: list[Record], change: Callable[[Record], Record]
) -> None:
    with pytest.raises(CalibrationError, match="too few samples"):
        fitted(tmp_path, changed(records, change))


def test_a_short_log_is_an_error(tmp_path: Path, records: list[Record]) -> None:
    with pytest.raises(CalibrationError, match="30 of either"):
        fitted(tmp_path, records[:20])


def test_what_is_no_access_log_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 10}\n')
    with pytest.raises(TraceError, match=":1:"):
        calibrate(str(path))


def test_without_scipy_it_says_what_to_install(
    tmp_path: Path, records: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *args: object, **kwargs: object) -> object:
        if name.partition(".")[0] == "scipy":
            raise ImportError("No module named 'scipy'", name="scipy")
        return real(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MissingExtra, match=r"scipy.*\[lab\]"):
        fitted(tmp_path, records)


def test_a_reservoir_is_fair_and_bounded() -> None:
    hits = [0] * 100
    for start in range(50):
        reservoir: Reservoir[int] = Reservoir(20)
        for number in range(100):
            reservoir.add((number + start * 2) % 100)
        assert len(reservoir.kept) == 20 and reservoir.seen == 100
        for kept in reservoir.kept:
            hits[kept] += 1
    assert min(hits) > 0
