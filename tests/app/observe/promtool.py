"""Runs promtool, also on the samples of a running router."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.places import ROOT

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
RULES = ROOT / "deploy" / "prometheus" / "hedgerow.rules.yml"

Page = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def promtool(*arguments: str) -> str:
    """Run a command, which must succeed, and return its output."""
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout
    return done.stdout


def evaluate(before: Page, after: Page, wanted: Mapping[str, list[str]], folder: Path) -> None:
    """Check the results of expressions after counters grew as between two pages for 20 minutes.

    `wanted`: for each expression, the labels of its samples, which must all have the value 1. The
    alert rules are evaluated, too.
    """
    series = []
    for (name, labels), value in after.items():
        grows = name.endswith(("_total", "_bucket", "_count", "_sum"))
        step = value - before.get((name, labels), 0.0) if grows else 0.0
        pairs = {"job": "llm", "instance": "a", **dict(labels)}
        named = ",".join(f"{key}={json.dumps(text)}" for key, text in pairs.items())
        series.append({"series": f"{name}{{{named}}}", "values": f"{value:f}+{step:f}x40"})
    asked: list[dict[str, Any]] = [
        {
            "expr": expr,
            "eval_time": "20m",
            "exp_samples": [{"labels": each, "value": 1} for each in labels],
        }
        for expr, labels in wanted.items()
    ]
    case = {"interval": "30s", "input_series": series, "promql_expr_test": asked}
    test = {"rule_files": [str(RULES)], "evaluation_interval": "30s", "tests": [case]}
    file = folder / "test.yml"
    file.write_text(yaml.safe_dump(test))
    promtool("test", "rules", str(file))
