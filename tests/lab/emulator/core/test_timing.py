"""Step times: the fitted coefficients, and chunks that sum to the whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.lab.emulator.core.timing import PROFILES, Timing
from router.lab.emulator.settings import EngineSettings

A100 = PROFILES["llama2-70b-a100x8"]


def test_a_fitted_prefill_and_decode_step() -> None:
    ms = 1e-3
    assert A100.prefill_alone_s(1000) == pytest.approx((37.5 + 107 + 9.5) * ms)
    assert A100.step_s(0, 0, 10, 5000) == pytest.approx((44.1 + 2.11 + 1.6) * ms)


def test_a_mixed_step_pays_its_constant_part_once() -> None:
    timing = Timing(3.0, 0.1, 0.0, 2.0, 0.5, 0.0)
    assert timing.step_s(10, 100, 4, 99) == pytest.approx(3.0 + 1.0 + 2.0)


def test_a_cached_prefix_is_not_computed_but_attended_to() -> None:
    whole, behind = A100.prefill_alone_s(4000), A100.prefill_alone_s(4000, cached=3000)
    fresh = A100.prefill_alone_s(1000)
    assert fresh < behind < whole


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=8))
def test_chunks_of_a_prefill_sum_to_the_whole(chunks: list[int]) -> None:
    total, start = 0.0, 0
    for chunk in chunks:
        end = start + chunk
        total += A100.step_s(chunk, end * end - start * start, 0, 0) - A100.prefill_s
        start = end
    assert total == pytest.approx(A100.prefill_alone_s(start) - A100.prefill_s)


def test_instant_takes_no_time() -> None:
    assert PROFILES["instant"].step_s(9999, 9999, 99, 9999) == 0


def test_the_realistic_card_keeps_the_ratio_of_what_was_measured_and_speed_scales_it() -> None:
    settings = EngineSettings(profile="realistic", speed=4.0)
    measured = A100.prefill_alone_s(4000) / A100.step_s(0, 0, 32, 32_000)
    ours = settings.timing().prefill_alone_s(4000) / settings.timing().step_s(0, 0, 32, 32_000)
    assert ours == pytest.approx(measured)
    whole = PROFILES["realistic"].step_s(0, 0, 32, 32_000)
    assert settings.timing().step_s(0, 0, 32, 32_000) == pytest.approx(whole / 4)
    # The measured model has about 8.6e9 parameters per card, the modelled one 8.0e9.
    assert 0.9 < PROFILES["realistic"].prefill_token_s / A100.prefill_token_s < 1.0
