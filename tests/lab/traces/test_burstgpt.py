"""BurstGPT's rows: whole seconds, failures, models and sessions."""

from __future__ import annotations

from router.lab.traces import open_trace
from tests.lab.traces.helpers import DATA


def test_the_first_files() -> None:
    found = list(open_trace(DATA / "burstgpt_v1.csv", spread_seed=None))
    assert [(a.at, a.model, a.prompt_tokens, a.output_tokens) for a in found] == [
        (0.0, "ChatGPT", 472, 18),
        (40.0, "ChatGPT", 1087, 230),
        (113.0, "GPT-4", 417, 276),
        (113.0, "GPT-4", 1360, 0),
    ]
    assert {a.session for a in found} == {None}


def test_the_third_file_has_sessions() -> None:
    trace = open_trace(DATA / "burstgpt.csv")
    assert trace.slot_s == 1.0
    found = list(trace)
    assert found[0].session == found[3].session is not None
    assert found[2].session is None
    assert [a.output_tokens for a in found] == [446, 29, 0, 220]
    assert 0.0 < found[2].at - found[1].at < 1.0


def test_failures_are_kept_unless_they_are_not_wanted() -> None:
    trace = open_trace(DATA / "burstgpt.csv", skip_failed=True)
    assert [a.output_tokens for a in trace] == [446, 29, 220]
    assert trace.notes() == {"skipped: failed": 1}
