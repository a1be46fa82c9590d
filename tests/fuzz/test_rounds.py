"""A target passes only if it reports its executions and exits successfully."""

from __future__ import annotations

import pytest

from tests.fuzz.rounds import judged

DONE = "#512 DONE   cov: 9\nDone 512 runs in 3 second(s)\n"


def test_a_target_that_ended_well() -> None:
    fuzzed = judged("form", DONE, 0, 7)
    assert (fuzzed.inputs, fuzzed.seconds, fuzzed.corpus, fuzzed.why) == (512, 3, 7, "")


@pytest.mark.parametrize(
    ("output", "status", "why"),
    [
        (DONE, 77, "status 77: Done 512 runs in 3 second(s)"),
        ("AssertionError: it depends on the cut\n\n", 0, "status 0: AssertionError"),
        ("", -1, "status -1: no output"),
    ],
)
def test_a_target_that_failed_or_never_ran(output: str, status: int, why: str) -> None:
    assert judged("form", output, status, 0).why.startswith(why)
