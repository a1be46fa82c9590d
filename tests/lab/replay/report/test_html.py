"""The HTML page: complete, without external resources, and safe with any names from a trace."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from html.parser import HTMLParser

import pytest

from router.core.errors import Reason
from router.lab.replay.report.html import page
from router.lab.replay.report.run import Replay, Run
from router.lab.simulator.outcome import Outcome
from tests.lab.replay.report.made import outcome, replay, run, steady

EVIL = "<script>alert('x')</script>&\"$a_b$"
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Checker(HTMLParser):
    """Records tags that are not closed in order, duplicate ids, and the displayed text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id" and value]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def checked(made: Replay) -> Checker:
    """Parse the page and check everything that must hold for any page."""
    text = page(made)
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert not checker.open
    assert len(set(checker.ids)) == len(checker.ids)
    assert not {"script", "link", "img", "iframe", "object"} & set(checker.tags)
    assert not [name for name, _ in checker.attributes if name.startswith("on")]
    assert "http:" not in text and "https:" not in text and "//" not in text
    assert "@import" not in text
    for name, value in checker.attributes:
        if name in ("href", "src", "xlink:href"):
            assert value is not None and value.startswith("#") and value[1:] in checker.ids
    for target in re.findall(r"url\((.*?)\)", text):
        assert target.startswith("#") and target[1:] in checker.ids
    return checker


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
    made = [
        *steady(wait, cached=40, expected=50, tenant="acme", priority="high"),
        *steady(wait, tenant="umbrella", priority="batch"),
        outcome(3.0, None, reason=Reason.REPLICA_RESET, attempts=2),
    ]
    return made


def sampled(runs: list[Run]) -> list[Run]:
    for one in runs:
        for second in range(20):
            one.summary.sampled(float(second), [second, *[1] * (one.scenario.replicas - 1)])
    return runs


def test_all_there_is_to_see() -> None:
    shown = "".join(checked(replay(*sampled(several(routers=4)))).text)
    for title in (
        *("Replay", "Results", "Time to first token", "Time per output token"),
        *(
            "Requests within the SLO by fleet size",
            "Prefix cache hits",
            "Separate and shared router state",
        ),
        *("Time to first token over time", "Load of the replicas over time"),
        *("By class", "By tenant", "Failures", "Expected and actual cache hits"),
        *("What was simulated", "Calibration of the engine model", "prefill: 4 %"),
        *(
            "1 May 2026",
            "replica_reset",
            "umbrella",
            "cost of separate router state",
            "4 shared",
        ),
    ):
        assert title in shown or title == "Replay", title


def test_the_same_replay_makes_the_same_page() -> None:
    assert page(replay(*sampled(several()))) == page(replay(*sampled(several())))


def test_no_name_of_a_trace_becomes_markup() -> None:
    evil = steady(0.3, tenant=EVIL, priority=EVIL)
    made = Replay(
        EVIL,
        [run(EVIL, [*evil, outcome(tenant="b", priority="b")], replicas=n) for n in (2, 3)],
        [(EVIL, EVIL)],
        [EVIL],
        EVIL,
    )
    checker = checked(made)
    shown = "".join(checker.text)
    assert "<script" not in page(made)
    # Names occur in title, heading, date, both facts, calibration, tables and plot legends.
    assert shown.count(EVIL) >= 12


def test_a_policy_has_the_same_colour_everywhere() -> None:
    text = page(replay(*sampled(several())))
    assert "var(--s0)" in text and "var(--s1)" in text and "var(--s2)" not in text
    assert not re.findall(r"(?:fill|stroke): ?#", text), "a colour that does not follow the page"


def test_without_matplotlib_there_are_tables_and_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if matplotlib were not installed
    checker = checked(replay(*several()))
    assert "svg" not in checker.tags
    assert "table" in checker.tags
    assert "pip install '.[lab]'" in "".join(checker.text)


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
