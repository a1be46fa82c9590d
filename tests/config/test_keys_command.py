"""The command `hedgerow key`: the line that it prints, and the errors."""

from __future__ import annotations

import re

import pytest

from router.cli import main
from router.config.keys import hash_of, parse_keys


def test_the_line_has_the_hash_of_the_key_that_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["key", "--name", "acme", "--tier", "pro", "--requests-per-minute", "3"]) == 0
    out, err = capsys.readouterr()
    (line,) = parse_keys(out.encode())
    assert (line.name, line.tier, line.requests_per_minute) == ("acme", "pro", 3.0)
    found = re.search(r"hr-\S+", err)
    assert found is not None
    assert line.hash == hash_of(found[0].encode())
    assert found[0] not in out


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--name", "a b"], "a name is 1 to 100 letters"),
        (["--ceiling", "top"], "ceiling: must be one of critical, high, normal, low, batch"),
        (["--tokens-per-day", "-1"], "tokens_per_day: must be above 0"),
        (["--weight", "nan"], "weight: must be a finite number"),
        (["--region", "eu", "--allowed-region", "us"], "region is not among allowed_regions"),
        (
            ["--concurrency", "0", "--ttft-slo-ms", "0"],
            "concurrency: must be at least 1; ttft_slo_ms: must be at least 0.001",
        ),
    ],
)
def test_a_wrong_value_is_named_and_no_key_is_printed(
    flags: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["key", "--name", "acme", *flags]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"hedgerow: {problem}")
    assert "hr-" not in err
