"""Formats the results as one table with its goals.

Must never decide whether a goal is met.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from bench.findings.found import Found
from bench.fleet.engines import PROFILE
from bench.hedging.http import own
from bench.hedging.http.figures import Figures
from bench.hedging.http.judge import judge
from bench.hedging.http.run import FLEET, Results
from bench.hedging.http.scenarios import HEALTHY, SCENARIOS
from bench.hedging.http.stage import Row
from bench.hedging.http.traffic import PROMPT, URGENT, URGENT_SHARE
from bench.overhead.cli import machine
from router.core.text.table import Column, build


def found(results: Results) -> Found:
    measured = [row for row in results.rows if row.figures is not None]
    place = ", ".join(f"{name} {value}" for name, value in machine(results.placement).items())
    size = results.options.size
    return Found(
        "Hedging over HTTP, and what people use today",
        f"{FLEET.count} emulated engines behind real sockets, profile {PROFILE} at {FLEET.speed:g} "
        f"times its speed; {results.saturation:.0f} requests/s saturate them. Streams with unique "
        f"prompts of {PROMPT[0]:,.0f} tokens (lognormal), open loop, Poisson; {URGENT_SHARE:.0%} "
        f"of the requests and of the tokens are of the class {URGENT}. One contestant after the "
        "other over fresh engines, all with the same requests at the same moments, of which the "
        "same first attempts are slow; TTFT from when a request was due, without a whole answer: "
        "the slowest. Copies and their prompt tokens (extra; computed: those of them that were "
        "prefilled) are the engines' own counts. Each row "
        f"{size.measured:g} s after {size.warm:g} s to warm up; before: {size.normal:g} s with "
        f"nothing wrong. {place}.",
        build(measured, columns(), group=lambda row: row.scenario),
        remarks=remarks(results),
        verdicts=judge(results.rows),
        figures={"rows": [asdict(row) for row in results.rows], "peers_wait_s": results.after_s},
    )


def columns() -> list[Column[Row]]:
    def figure(value: Callable[[Figures], float | None]) -> Callable[[Row], float | None]:
        return lambda row: value(row.figures) if row.figures is not None else None

    def ms(value: Callable[[Figures], float | None]) -> Callable[[Row], float | None]:
        def scaled(seen: Figures) -> float | None:
            seconds = value(seen)
            return None if seconds is None else seconds * 1e3

        return figure(scaled)

    urgent = f"ms, {URGENT}"
    return [
        Column("scenario", "scenario", text=lambda row: row.scenario),
        Column("name", "router", text=lambda row: row.name + ("!" if row.problems else "")),
        Column("requests", URGENT, "requests", figure(lambda seen: seen.urgent.requests)),
        Column("u50", "TTFT p50", urgent, ms(lambda seen: seen.urgent.p50), "low"),
        Column("u99", "TTFT p99", urgent, ms(lambda seen: seen.urgent.p99), "low"),
        Column("worst", "slowest", urgent, ms(lambda seen: seen.urgent.worst), "low"),
        Column("before", "p99 before", urgent, ms(lambda seen: seen.urgent_normal.p99)),
        Column("o50", "TTFT p50", "ms, others", ms(lambda seen: seen.other.p50), "low"),
        Column("o99", "TTFT p99", "ms, others", ms(lambda seen: seen.other.p99), "low"),
        Column("copies", "copies", "", figure(lambda seen: seen.copies)),
        Column("won", "won", "", lambda row: row.hedges.get(own.WON)),
        Column("extra", "extra", "% tokens", figure(lambda seen: 100 * seen.extra_asked)),
        Column("computed", "computed", "% tokens", figure(lambda seen: 100 * seen.extra_computed)),
        Column("errors", "errors", "", figure(lambda seen: sum(seen.errors.values())), "low"),
        Column("router", "router", "CPU", lambda row: row.router_cpu),
        Column("engines", "engines", "CPU", lambda row: row.engines_cpu),
        Column("load", "load", "CPU", figure(lambda seen: seen.load_cpu)),
    ]


def remarks(results: Results) -> list[str]:
    """Describe each scenario, each contestant and the problems of each row, without duplicates."""
    lines: dict[str, None] = {}
    names = dict.fromkeys(row.scenario for row in results.rows)
    for scenario in (HEALTHY, *SCENARIOS.values()):
        if scenario.name in names:
            lines[f"{scenario.name}: {scenario.title}; load {scenario.load:g}"] = None
    for row in results.rows:
        version = f" {row.version}" if row.version != "-" else ""
        lines[f"{row.name}{version}: {row.settings}"] = None
    for row in results.rows:
        if row.absent:
            lines[f"{row.scenario}, {row.name}: not measured: {row.absent}"] = None
        if row.hedges:
            words = ", ".join(f"{name} {count:g}" for name, count in row.hedges.items())
            lines[f"{row.scenario}, {row.name} says of itself: {words}"] = None
        for problem in row.problems:
            lines[f"! {row.scenario}, {row.name}: {problem}"] = None
    return list(lines)
