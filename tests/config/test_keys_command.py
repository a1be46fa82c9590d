"""The command `hedgerow key`: the line that it prints, and the errors."""

import re

import pytest

from router.cli import main
from router.config.keys import KeyLine, ModelBudgets, hash_of, parse_keys


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


def test_every_setting_of_a_key_has_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["key", "--help"])
    shown = capsys.readouterr().out
    for name in KeyLine.__struct_fields__:
        assert name == "hash" or f"--{name.replace('_', '-').rstrip('s')}" in shown, name


def test_budgets_for_models(capsys: pytest.CaptureFixture[str]) -> None:
    budgets = ["a:8b:tokens_per_day=1e6", "a:8b:cost-per-month=2.5", "b:tokens_per_week=3"]
    flags = [word for text in budgets for word in ("--model-budget", text)]
    assert main(["key", "--name", "acme", "--model", "b", *flags]) == 0
    (line,) = parse_keys(capsys.readouterr().out.encode())
    assert line.models == ("b",)
    assert line.model_budgets == {
        "a:8b": ModelBudgets(tokens_per_day=1e6, cost_per_month=2.5),
        "b": ModelBudgets(tokens_per_week=3.0),
    }


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--model-budget", "tokens_per_day=1"], "--model-budget: 'tokens_per_day=1' is not"),
        (["--model-budget", "m:tokens_per_day=x"], "--model-budget: 'm:tokens_per_day=x' is"),
        (["--model-budget", "m:tokens=1"], "model_budgets.m.tokens: "),
        (["--model-budget", "m:tokens_per_day=-1"], "model_budgets.m.tokens_per_day: must be a"),
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
