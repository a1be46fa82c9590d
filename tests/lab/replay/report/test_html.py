"""The HTML page: complete, without external resources, and safe with any names from a trace."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from html import unescape

import pytest

from router.core.errors import Reason
from router.lab.replay.report.html import page
from router.lab.replay.report.run import Replay, Run
from router.lab.simulator.outcome import Outcome
from tests.lab.replay.report.made import outcome, replay, run, steady

EVIL = "<script>alert('x')</script>&\"$a_b$"
TAGS = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "pre", "img", "code"}


def checked(made: Replay) -> str:
    """Make the page, check what must hold for any page, and return its text."""
    text = page(made)
    tags = set(re.findall(r"</?(\w+)", text))
    assert tags <= TAGS
    assert not {"http:", "https:", "@import"} & set(re.findall(r"https?:|@import", text))
    assert all(src.startswith("data:image/png;base64,") for src in re.findall(r'src="(.*?)"', text))
    for tag in ("h2", "p", "pre", "body"):
        assert text.count(f"<{tag}>") + text.count(f"<{tag} ") == text.count(f"</{tag}>"), tag
    return unescape(re.sub(r"<img .*?>", "", text))


def several(*, routers: int = 1, sizes: Sequence[int] = (2, 3)) -> list[Run]:
    waits = {"kv_aware": 0.3, "random": 0.9}
    return [
        run(policy, loaded(wait), replicas=size, routers=routers, shared=shared)
        for shared in ([False, True] if routers > 1 else [False])
        for size in sizes
        for policy, wait in waits.items()
    ]


def loaded(wait: float) -> list[Outcome]:
    """Requests of two classes and tenants; some prompts are cached, and one request fails."""
    return [
        *steady(wait, cached=40, expected=50, tenant="acme", priority="high"),
        *steady(wait, tenant="umbrella", priority="batch"),
        outcome(3.0, None, reason=Reason.REPLICA_RESET, attempts=2),
    ]


def test_all_there_is_to_see() -> None:
    shown = checked(replay(*several(routers=4)))
    for title in (
        *("Results", "Times to first token and per output token"),
        *("Requests within the SLO by fleet size", "Times to first token and load over time"),
        *("By class", "By tenant", "Failures", "replica_reset", "umbrella"),
        *("cost of separate router state", "4 shared", "1 May 2026"),
        *("What was simulated", "Calibration of the engine model", "prefill: 4 %"),
    ):
        assert title in shown, title


def test_no_name_of_a_trace_becomes_markup() -> None:
    evil = steady(0.3, tenant=EVIL, priority=EVIL)
    runs = [run(EVIL, [*evil, outcome(tenant="b", priority="b")], replicas=n) for n in (2, 3)]
    made = Replay(EVIL, runs, [(EVIL, EVIL)], [EVIL], EVIL)
    assert "<script" not in page(made)
    # Names occur in title, heading, both facts, calibration, date and tables.
    assert checked(made).count(EVIL) >= 10


def test_without_matplotlib_there_are_tables_and_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if matplotlib were not installed
    shown = checked(replay(*several()))
    assert "pip install '.[lab]'" in shown and "Results" in shown
    assert "<img" not in page(replay(*several()))


@pytest.mark.parametrize(
    "made",
    [
        replay(run()),
        replay(run(outcomes=[outcome(0.0, None, reason=Reason.NO_REPLICA)])),
        replay(run(outcomes=[outcome()], replicas=1)),
        replay(run(outcomes=[outcome(0.0, 0.0, 0.0, output=1)])),
        replay(run("a", [outcome()]), run("b")),
        replay(run("a", steady(0.3), routers=2), run("a", routers=2, shared=True)),
        replay(*[run(f"p{n}", steady(0.3)) for n in range(12)]),
        replay(*[run("p", steady(0.3), replicas=n) for n in range(1, 30)]),
        replay(run("p", [outcome(n * 1e5, 10.0**n) for n in range(8)])),
    ],
    ids=[
        *("nothing", "failures only", "one request", "no time at all", "one of two is empty"),
        *("blind or empty", "many policies", "many sizes", "days"),
    ],
)
def test_odd_runs_make_a_page_too(made: Replay) -> None:
    checked(made)
