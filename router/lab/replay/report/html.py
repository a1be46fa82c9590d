"""Builds one HTML page of a replay, from the elements in `pieces`.

Every text that comes from a trace or a flag is escaped. Must never: load or link anything from
another host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from router.core.errors import Reason
from router.core.text.table import Column, build
from router.lab.replay.report import columns, plots
from router.lab.replay.report.findings import findings
from router.lab.replay.report.pieces import document, drawn, facts, listed, section, table
from router.lab.replay.report.run import Replay, Run
from router.lab.replay.report.truth import of_truth


def page(replay: Replay) -> str:
    """Return the complete file. The page has plots only if matplotlib is installed."""
    when = f"Simulated {replay.when}" if replay.when else ""
    return document(replay.title, when, _sections(replay))


def _sections(replay: Replay) -> Iterator[str]:
    yield listed(findings(replay))
    if replay.truth is not None:
        yield section(
            "Log and simulation",
            table(of_truth(replay.truth)) if replay.truth.is_judged else "",
            listed(replay.truth.lines()),
        )
    figures = build(
        replay.runs, columns.of_runs(replay.runs), group=lambda run: run.setup, deltas=True
    )
    yield section("Results", table(figures), _figures_note(replay))
    focus = replay.focus()
    yield drawn(lambda: plots.draw(replay, focus))
    here = replay.at(focus)
    for what, parts in (
        ("class", columns.parts_of(here, "by_class")),
        ("tenant", columns.parts_of(here, "by_tenant")),
    ):
        if parts:
            split = build(parts, columns.of_parts(what, parts), group=lambda part: part.name)
            yield section(f"By {what}", table(split), f"<p>{escape(str(focus))}.</p>")
    yield _failures(replay)
    yield _knowledge(here, str(focus))
    yield section("What was simulated", facts(replay.facts))
    if replay.calibration:
        lines = "\n".join(replay.calibration)
        yield section("Calibration of the engine model", f"<pre>{escape(lines)}</pre>")


def _figures_note(replay: Replay) -> str:
    slo = replay.runs[0].summary.slo
    return (
        "<p>Bold: the best value of each fleet. Small: the change relative to the first row of the "
        "fleet. In quantiles, a request without a complete answer counts as slower than all others "
        "(∞); means do not include it. "
        f"SLO: first token within {slo.ttft_s:g} s, then {slo.tpot_s * 1e3:g} ms per token. "
        "Goodput: only requests within the SLO. Hits: prompt tokens found in an engine's cache. "
        "Hotspot: the largest share of requests at one replica, times the number of replicas.</p>"
    )


def _failures(replay: Replay) -> str:
    failing = [run for run in replay.runs if run.summary.reasons or run.summary.repeated]
    if not failing:
        return ""
    reasons = sorted({reason for run in failing for reason in run.summary.reasons})
    shown: list[Column[Run]] = [
        Column("policy", "policy", text=lambda run: run.policy),
        Column("place", "fleet", text=lambda run: str(run.setup)),
        Column("repeated", "retried", value=lambda run: run.summary.repeated),
    ]
    shown += [_failed_by(reason) for reason in reasons]
    return section("Failures", table(build(failing, shown)))


def _failed_by(reason: Reason) -> Column[Run]:
    return Column(reason, str(reason), value=lambda run: run.summary.reasons.get(reason, 0))


def _knowledge(runs: Sequence[Run], fleet: str) -> str:
    if not any(run.summary.knowledge.expected for run in runs):
        return ""

    def share(tokens: int, run: Run) -> float | None:
        prompts = run.summary.all.prompt_tokens
        return 100.0 * tokens / prompts if prompts else None

    shown: list[Column[Run]] = [
        Column("policy", "policy", text=lambda run: run.policy),
        Column("expected", "expected", "%", lambda run: share(run.summary.knowledge.expected, run)),
        Column("found", "found", "%", lambda run: share(run.summary.all.cached_tokens, run)),
        Column("too_high", "wrongly", "%", lambda run: share(run.summary.knowledge.too_high, run)),
        Column("too_low", "missed", "%", lambda run: share(run.summary.knowledge.too_low, run)),
    ]
    note = (
        f"<p>{escape(fleet)}. Cached prompt tokens as a share of all prompt tokens: expected by "
        "the router at the chosen replica, found by the engine, expected but not found, and found "
        "but not expected.</p>"
    )
    return section("Expected and actual cache hits", table(build(runs, shown)), note)
