"""What follows from a replay, in sentences that a person reads first. Pure.

Must never: claim a difference that the table does not show.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite

from router.replay.report.run import Replay, Run
from router.replay.report.table import number
from router.replay.report.words import seconds
from router.replay.truth.judged import QUANTILES
from router.replay.truth.trust import Figures, not_ranked

_ENOUGH = 0.99  # share of requests in the SLO from which a fleet is large enough


def findings(replay: Replay) -> list[str]:
    """The best policy, the fleet each of them needs, what blindness costs, what is wrong."""
    return [
        *_best(replay),
        *_large_enough(replay),
        *blindness(replay),
        *_not_ranked(replay),
        *_failing(replay),
        *_notes(replay),
    ]


def blindness(replay: Replay) -> list[str]:
    """What it costs that routers do not know of each other's requests, policy by policy.

    Of several fleets, at the one that is looked at; the table has them all.
    """
    found = []
    focus = replay.focus().replicas
    for apart, shared in replay.twins():
        if apart.scenario.replicas != focus:
            continue
        costs = [
            f"{name} {change}"
            for name, one, other in (
                ("TTFT mean", apart.summary.all.ttft.mean, shared.summary.all.ttft.mean),
                ("TTFT p99", _ttft_p99(apart), _ttft_p99(shared)),
                ("goodput", apart.summary.goodput, shared.summary.goodput),
            )
            if (change := _change(one, other))
        ]
        found.append(
            f"{apart.policy} on {_replicas(apart)}, {apart.scenario.routers} routers: "
            f"blindness costs: {', '.join(costs) or 'nothing'}"
        )
    return found


def _best(replay: Replay) -> list[str]:
    """Who keeps the most requests within the SLO; where all keep as many, who is soonest."""
    focus = replay.focus()
    runs = [run for run in replay.at(focus) if run.summary.all.requests]
    if len(runs) < 2:
        return []
    ranked = sorted(runs, key=lambda run: (-_share(run), _mean(run)))
    best, worst = ranked[0], ranked[-1]
    if number(100.0 * _share(best)) != number(100.0 * _share(worst)):
        return [
            f"With {focus}, {best.policy} keeps the most requests within the SLO: "
            f"{_percent(best)}, {worst.policy} the fewest: {_percent(worst)}. Their first tokens "
            f"take {seconds(_mean(best))} and {seconds(_mean(worst))} on average."
        ]
    if best.summary.all.failed or number(_mean(best)) == number(_mean(worst)):
        return []
    return [
        f"With {focus}, all keep {_percent(best)} of requests within the SLO; {best.policy} shows "
        f"the first token soonest, after {seconds(_mean(best))} on average, {worst.policy} last, "
        f"after {seconds(_mean(worst))}."
    ]


def _large_enough(replay: Replay) -> list[str]:
    """How many replicas a policy needs: for nearly all requests, and to do as well as the worst."""
    first = replay.runs[0].place[1:]
    runs = [run for run in replay.runs if run.place[1:] == first]
    sizes = sorted({run.scenario.replicas for run in runs})
    if len(sizes) < 2:
        return []
    needed: dict[int | None, list[str]] = {}
    for policy in dict.fromkeys(run.policy for run in runs):
        enough = [
            run.scenario.replicas for run in runs if run.policy == policy and _share(run) >= _ENOUGH
        ]
        needed.setdefault(min(enough, default=None), []).append(policy)
    goal = f"{100 * _ENOUGH:g} % of requests within the SLO"
    if list(needed) == [None]:
        found = [f"No fleet of up to {sizes[-1]:,} replicas keeps {goal}."]
    else:
        parts = [
            f"{f'more than {sizes[-1]:,}' if size is None else f'{size:,}'} with {_and(policies)}"
            for size, policies in sorted(needed.items(), key=lambda one: one[0] or inf)
        ]
        found = [f"Replicas for {goal}: {'; '.join(parts)}."]
    largest = min((run for run in runs if run.scenario.replicas == sizes[-1]), key=_share)
    smaller = [
        run
        for run in runs
        if run.scenario.replicas < sizes[-1]
        and run.policy != largest.policy
        and _share(run) >= _share(largest)
    ]
    if smaller:
        run = min(smaller, key=lambda run: (run.scenario.replicas, -_share(run)))
        found.append(
            f"{run.policy} on {_replicas(run)} ({_percent(run)} within the SLO) does at least as "
            f"well as {largest.policy} on {_replicas(largest)} ({_percent(largest)})."
        )
    return found


def _not_ranked(replay: Replay) -> list[str]:
    """Policies that differ by less than the simulation differs from the log."""
    truth = replay.truth
    if truth is None or not truth.is_judged:
        return []
    runs = {run.policy: run.summary.all for run in replay.at(replay.focus())}
    figures: dict[str, Figures] = {
        policy: {
            (name, q): None if (found := group.quantile(of, q)) is None else 1e3 * found
            for name, of in (("TTFT", group.ttft), ("TPOT", group.tpot))
            for q in QUANTILES
        }
        for policy, group in runs.items()
    }
    return not_ranked(truth.rows, figures)


def _failing(replay: Replay) -> list[str]:
    """Policies that raise or answer nonsense, as a new one may."""
    return [
        f"{run.policy} on {_replicas(run)} failed to choose {run.policy_errors:,} times; a random "
        "replica was taken."
        for run in replay.runs
        if run.policy_errors
    ]


def _notes(replay: Replay) -> list[str]:
    return [
        f"{run.policy} on {_replicas(run)}: {count:,} requests {what}."
        for run in replay.runs
        for what, count in sorted(run.notes.items())
    ]


def _share(run: Run) -> float:
    return run.summary.all.attainment or 0.0


def _percent(run: Run) -> str:
    return f"{number(100.0 * _share(run))} %"


def _mean(run: Run) -> float:
    """Of the TTFT, in seconds; infinity if nobody got one."""
    mean = run.summary.all.ttft.mean
    return inf if mean is None else mean


def _ttft_p99(run: Run) -> float | None:
    return run.summary.all.quantile(run.summary.all.ttft, 0.99)


def _change(one: float | None, other: float | None) -> str:
    """How much more `one` is than `other`."""
    if one is None or other is None or other <= 0.0 or not isfinite(other):
        return ""
    if not isfinite(one):
        return "never"
    return f"{100.0 * (one / other - 1.0):+.1f} %".replace("-", "−")


def _replicas(run: Run) -> str:
    return "1 replica" if run.scenario.replicas == 1 else f"{run.scenario.replicas:,} replicas"


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
