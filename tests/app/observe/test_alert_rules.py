"""The alert rules in deploy/prometheus match the metrics of a running router.

promtool, if it is installed, checks the results of the rules.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest
import yaml

from router.config.model import BatchClass, Discovery, HighClass, Queue
from router.observe.metrics import BOUNDS_S
from tests.app.observe.expressions import Samples, problems
from tests.faults.process.metrics import scrape
from tests.harness.behaviours import sse_tokens
from tests.harness.messages import chat
from tests.harness.running import running, scenario
from tests.places import ROOT

FOLDER = ROOT / "deploy" / "prometheus"
RULES = FOLDER / "hedgerow.rules.yml"


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def texts(rule: dict[str, Any]) -> str:
    return " ".join(rule["annotations"].values())


@scenario
async def test_a_running_router_exposes_all_that_they_speak_of() -> None:
    queue, discovery = Queue(enabled=True), Discovery(files=("/nonexistent",))
    async with running(sse_tokens(3), queue=queue, discovery=discovery) as router:
        answer = await router.ask(chat(stream=True, priority="high"), "POST")
        assert answer.complete
        samples = set(await scrape(router.app.admin_port))
    for rule in rules():
        assert problems(rule["expr"], samples, texts(rule)) == [], rule["alert"]


@pytest.mark.parametrize(
    ("expr", "text", "wanted"),
    [
        ("hedgerow_ready == 0", "", []),
        ('up{job="x"} == 0', "", []),
        ("hedgerow_readiness == 0", "", ["hedgerow_readiness{}"]),
        ('hedgerow_queue_depth{class="low"} > 1', "{{ $labels.class }}", []),
        (
            'hedgerow_queue_depth{class="lowest"} > 1',
            "",
            ['hedgerow_queue_depth{class="lowest"}'],
        ),
        ("sum by (job, tenant) (hedgerow_queue_depth)", "", ["tenant"]),
        ("sum by (job) (hedgerow_queue_depth)", "{{ $labels.class }}", ["class"]),
    ],
)
def test_what_is_not_there_would_be_noticed(expr: str, text: str, wanted: list[str]) -> None:
    samples: Samples = {
        ("hedgerow_ready", frozenset()),
        ("hedgerow_queue_depth", frozenset({("class", "low")})),
    }
    assert problems(expr, samples, text) == wanted


def test_bounds_are_those_of_the_configuration() -> None:
    bounds = {rule["alert"]: rule["expr"].split(">")[-1].strip() for rule in rules()}
    assert float(bounds["HedgerowBatchStarving"]) == BatchClass().starvation_s
    assert float(bounds["HedgerowHighFirstTokenLate"]) == HighClass().ttft_slo_s
    # A threshold must be a bucket bound, because a quantile is only as exact as its bucket.
    assert float(bounds["HedgerowHighFirstTokenLate"]) in BOUNDS_S


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
@pytest.mark.parametrize("what", [("check", RULES.name), ("test", "hedgerow.test.yml")])
def test_promtool_agrees(what: tuple[str, str]) -> None:
    verb, file = what
    done = subprocess.run(
        ["promtool", verb, "rules", file], cwd=FOLDER, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


def test_each_rule_is_tried_when_it_fires_and_when_it_does_not() -> None:
    tests = yaml.safe_load((FOLDER / "hedgerow.test.yml").read_text())["tests"]
    tried: dict[str, set[bool]] = {}
    for test in tests:
        for case in test["alert_rule_test"]:
            tried.setdefault(case["alertname"], set()).add(bool(case["exp_alerts"]))
    assert tried == {rule["alert"]: {True, False} for rule in rules()}
