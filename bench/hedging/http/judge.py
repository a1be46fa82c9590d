"""Formats the results as one table with its goals.

Must never decide whether a goal is met.

`judge`: judges the goals of hedging over HTTP: compares Hedgerow with and without hedging. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

from bench.findings.found import Found
from bench.fleet.engines import PROFILE
from bench.hedging import goals
from bench.hedging.http.figures import Figures
from bench.hedging.http.own import WON
from bench.hedging.http.stage import FLEET, Results, Row
from bench.hedging.http.traffic import HEALTHY, PROMPT, SCENARIOS, URGENT, URGENT_SHARE
from bench.overhead.cli import machine
from bench.overhead.goals import Verdict
from router.config.model import Hedging
from router.core.text.table import Column, build

BUDGET = Hedging().budget
WITH, WITHOUT = "adaptive", "off"


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Return the verdicts on the goals of every scenario that was run with hedging."""
    verdicts: list[Verdict] = []
    for scenario in dict.fromkeys(row.scenario for row in rows):
        here = {row.key: row for row in rows if row.scenario == scenario}
        if WITH in here:
            verdicts += _scenario(scenario, here)
    return verdicts


def _scenario(scenario: str, here: dict[str, Row]) -> list[Verdict]:
    own, without = _figures(here.get(WITH)), _figures(here.get(WITHOUT))
    p99 = own.urgent.p99 if own is not None else None
    p99_without = without.urgent.p99 if without is not None else None
    name = f"{scenario}: {URGENT}"
    found = []
    if scenario.startswith("slow-requests"):
        found.append(goals.cut(f"{name}, p99 TTFT", p99_without, p99, 0.6, _note(here)))
        found.append(_best_other(name, p99, here))
    elif scenario == "frozen":
        normal = own.urgent_normal.p99 if own is not None else None
        worst = own.urgent.worst if own is not None else None
        found.append(goals.times(f"{name}, slowest", worst, normal, 2.0, "p99 before"))
    else:
        found.append(goals.kept(f"{name}, p99 TTFT", p99_without, p99, 0.02, _note(here)))
    found.append(
        goals.kept(
            f"{scenario}: others, p99 TTFT",
            without.other.p99 if without is not None else None,
            own.other.p99 if own is not None else None,
            0.03,
            _chance(here, "other"),
        )
    )
    extra = own.extra_asked if own is not None else None
    found.append(goals.within(f"{scenario}: extra prompt tokens", extra, BUDGET))
    return found


def _best_other(name: str, p99: float | None, here: dict[str, Row]) -> Verdict:
    """Compare the p99 with that of the best other router."""
    others = {
        row.name: theirs
        for key, row in here.items()
        if key not in (WITH, WITHOUT)
        and row.figures is not None
        and (theirs := row.figures.urgent.p99) is not None
    }
    if not others:
        return Verdict(f"{name}, p99 TTFT", "the best of the others'", 1.0, None, "no others")
    best = min(others, key=lambda who: others[who])
    troubles = "; ".join(p for row in here.values() if row.name == best for p in row.problems)
    note = f"{best}: {troubles}" if troubles else ""
    return goals.times(f"{name}, p99 TTFT", p99, others[best], 1.0, f"{best}'s", note)


def _figures(row: Row | None) -> Figures | None:
    return row.figures if row is not None else None


def _note(here: dict[str, Row]) -> str:
    if WITHOUT not in here:
        return ""
    mine = [here[WITHOUT], here[WITH]]
    problems = [f"{row.name}: {problem}" for row in mine for problem in row.problems]
    return "; ".join(filter(None, [_chance(here, "urgent"), *problems]))


def _chance(here: dict[str, Row], side: str) -> str:
    """Format the 95 % confidence intervals of the p99 without and with hedging."""
    if WITHOUT not in here:
        return ""
    words = []
    for key in (WITHOUT, WITH):
        seen = _figures(here.get(key))
        bounds = getattr(seen, side).p99_bounds if seen is not None else None
        if bounds is not None:
            words.append(f"{key} {bounds[0] * 1e3:.0f} to {bounds[1] * 1e3:.0f} ms")
    return f"by chance: {', '.join(words)}" if words else ""


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
        Column("won", "won", "", lambda row: row.hedges.get(WON)),
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
