"""The HTML page: complete, without external resources, and safe with any names from a trace."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from html import unescape

import pytest

from router.core.errors import Reason
from router.lab.replay.report.document import document
from router.lab.replay.report.findings import findings, separate_state
from router.lab.replay.report.html import page
from router.lab.replay.report.run import Replay, Run, Setup
from router.lab.replay.report.words import StatusLine
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


def test_only_the_section_run_depends_on_the_machine() -> None:
    one = run("kv_aware", steady(0.3))
    texts = [
        document(replace(replay(replace(one, wall_s=wall)), when=when))
        for wall, when in ((2.0, "1 May 2026"), (3.0, "2 May 2026"))
    ]
    first, second = map(json.loads, texts)
    assert first.pop("run") == {
        "date": "1 May 2026",
        "runs": [{"wall_s": 2.0, "events_per_s": 5.0}],
    }
    second.pop("run")
    assert json.dumps(first) == json.dumps(second)
    assert texts[0].endswith("}\n")


def test_what_was_run_and_what_came_of_it() -> None:
    content = json.loads(document(replay(run("kv_aware", steady(0.3), routers=4))))
    assert content["facts"] == {"seed": "1"}
    (found,) = content["runs"]
    assert (found["policy"], found["replicas"], found["routers"], found["shared"]) == (
        *("kv_aware", 2, 4, False),
    )
    assert found["slo"] == {"ttft_s": 1.0, "tpot_s": 0.1}
    assert (found["requests"], found["slo_attainment"]) == (20, 1.0)
    assert found["ttft_s"]["mean"] == pytest.approx(0.35)


def test_what_does_not_exist_is_null() -> None:
    (found,) = json.loads(document(replay(run())))["runs"]
    assert found["goodput_requests_per_s"] is None
    assert found["ttft_s"] == {"mean": None, "p50": None, "p90": None, "p99": None}


ERASE = "\r\033[K"


def test_a_new_text_replaces_the_line_and_an_equal_one_is_not_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = StatusLine()
    line.show("reading: 1 %")
    line.show("reading: 1 %")
    line.show("reading: 2 %")
    assert capsys.readouterr().err == f"{ERASE}reading: 1 %{ERASE}reading: 2 %"


def test_closing_erases_the_line_once(capsys: pytest.CaptureFixture[str]) -> None:
    line = StatusLine()
    line.close()
    assert capsys.readouterr().err == ""
    line.show("reading: 1 %")
    capsys.readouterr()
    line.close()
    line.close()
    assert capsys.readouterr().err == ERASE


LATE = steady(3.0)  # every request misses an SLO of one second
FAST = steady(0.3)


def test_a_smaller_fleet_that_does_as_well_and_none_that_is_enough() -> None:
    half, fewer = [*LATE[:10], *FAST[10:]], [*LATE[:15], *FAST[15:]]
    made = replay(
        run("kv_aware", half, replicas=8),
        run("random", LATE, replicas=8),
        run("kv_aware", half, replicas=9),
        run("random", fewer, replicas=9),
    )
    assert findings(made)[1:] == [
        "No fleet of up to 9 replicas reaches 99 % of requests within the SLO.",
        "kv_aware on 8 replicas (50.0 % within the SLO) is at least as good as random on "
        "9 replicas (25.0 %).",
    ]


def test_what_separate_state_costs() -> None:
    made = replay(
        run("kv_aware", steady(0.6), routers=4),
        run("random", FAST, routers=4),
        run("kv_aware", LATE, routers=4, replicas=3),
        run("kv_aware", FAST, routers=4, shared=True),
        run("kv_aware", FAST, routers=4, replicas=3, shared=True),
    )
    assert separate_state(made) == [
        "kv_aware on 2 replicas, 4 routers: cost of separate router state: "
        "TTFT mean +100.0 %, TTFT p99 +100.2 %, goodput −2.0 %"
    ]


def test_an_infinite_quantile_is_reported() -> None:
    failing = [*FAST, outcome(5.0, None, reason=Reason.TTFT_TIMEOUT)]
    made = replay(run("p2c", failing, routers=2), run("p2c", FAST, routers=2, shared=True))
    assert "TTFT p99 infinite" in separate_state(made)[0]


def test_a_policy_that_fails_is_named() -> None:
    assert findings(replay(run("mine", FAST, policy_errors=7))) == [
        "mine on 2 replicas failed to choose a replica 7 times; a random replica was used."
    ]


def test_the_focus_is_where_policies_differ_most() -> None:
    made = replay(
        run("kv_aware", FAST, replicas=8, routers=2),
        run("random", [*FAST[:15], *LATE[15:]], replicas=8, routers=2),
        run("kv_aware", FAST, replicas=9, routers=2),
        run("random", LATE, replicas=9, routers=2),
        run("kv_aware", LATE, replicas=9, routers=2, shared=True),
    )
    assert made.focus() == Setup(9, 2, False)
    assert str(made.focus()) == "9 replicas, 2 routers with separate state"
    assert replay(run("one", FAST, replicas=1)).focus() == Setup(1, 1, False)
