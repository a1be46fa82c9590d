"""States the main results of a replay in sentences. All functions are pure.

Must never: state a difference that the table does not show.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite

from router.core.text.table import number
from router.lab.replay.report.run import Replay, Run
from router.lab.replay.report.words import seconds
from router.lab.replay.truth.judged import QUANTILES, Figures, not_ranked

_SHARE_MIN = 0.99  # a fleet is large enough if this share of requests is within the SLO


def findings(replay: Replay) -> list[str]:
    """Return the sentences about a replay.

    They state the best policy, the fleet size that each policy needs, the effect of shared state,
    and problems.
    """
    return [
        *_best(replay),
        *_large_enough(replay),
        *separate_state(replay),
        *_not_ranked(replay),
        *_failing(replay),
        *_notes(replay),
    ]


def separate_state(replay: Replay) -> list[str]:
    """State the cost of separate router state per policy.

    With separate state each router knows only its own requests. With several fleet sizes, the
    sentences are about the size of `Replay.focus` only.
    """
    found = []
    focus = replay.focus().replicas
    for separate, shared in replay.pairs():
        if separate.scenario.replicas != focus:
            continue
        costs = [
            f"{name} {change}"
            for name, one, other in (
                ("TTFT mean", separate.summary.all.ttft.mean, shared.summary.all.ttft.mean),
                ("TTFT p99", _ttft_p99(separate), _ttft_p99(shared)),
                ("goodput", separate.summary.goodput, shared.summary.goodput),
            )
            if (change := _change(one, other))
        ]
        found.append(
            f"{separate.policy} on {_replicas(separate)}, {separate.scenario.routers} routers: "
            f"cost of separate router state: {', '.join(costs) or 'none'}"
        )
    return found


def _best(replay: Replay) -> list[str]:
    """State the policies with the most and the fewest requests within the SLO.

    For equal shares, state the policies with the shortest and the longest mean TTFT.
    """
    focus = replay.focus()
    runs = [run for run in replay.at(focus) if run.summary.all.requests]
    if len(runs) < 2:
        return []
    ranked = sorted(runs, key=lambda run: (-_share(run), _mean(run)))
    best, worst = ranked[0], ranked[-1]
    if number(100.0 * _share(best)) != number(100.0 * _share(worst)):
        return [
            f"With {focus}, {best.policy} has the most requests within the SLO: "
            f"{_percent(best)}, {worst.policy} the fewest: {_percent(worst)}. Their mean TTFT is "
            f"{seconds(_mean(best))} and {seconds(_mean(worst))}."
        ]
    if best.summary.all.failed or number(_mean(best)) == number(_mean(worst)):
        return []
    return [
        f"With {focus}, all policies have {_percent(best)} of requests within the SLO; "
        f"{best.policy} has the shortest mean TTFT, {seconds(_mean(best))}, {worst.policy} the "
        f"longest, {seconds(_mean(worst))}."
    ]


def _large_enough(replay: Replay) -> list[str]:
    """State the number of replicas with which each policy has nearly all requests within the SLO.

    Also state the smallest fleet on which another policy is at least as good as the worst policy on
    the largest fleet.
    """
    first = replay.runs[0].setup[1:]
    runs = [run for run in replay.runs if run.setup[1:] == first]
    sizes = sorted({run.scenario.replicas for run in runs})
    if len(sizes) < 2:
        return []
    needed: dict[int | None, list[str]] = {}
    for policy in dict.fromkeys(run.policy for run in runs):
        enough = [
            run.scenario.replicas
            for run in runs
            if run.policy == policy and _share(run) >= _SHARE_MIN
        ]
        needed.setdefault(min(enough, default=None), []).append(policy)
    goal = f"{100 * _SHARE_MIN:g} % of requests within the SLO"
    if list(needed) == [None]:
        found = [f"No fleet of up to {sizes[-1]:,} replicas reaches {goal}."]
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
            f"{run.policy} on {_replicas(run)} ({_percent(run)} within the SLO) is at least as "
            f"good as {largest.policy} on {_replicas(largest)} ({_percent(largest)})."
        )
    return found


def _not_ranked(replay: Replay) -> list[str]:
    """Name pairs of policies whose difference is smaller than the error of the simulation."""
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
    """Name policies that raised an exception or returned an invalid choice."""
    return [
        f"{run.policy} on {_replicas(run)} failed to choose a replica {run.policy_errors:,} times; "
        "a random replica was used."
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
    """The mean TTFT in seconds; infinity if no request was answered."""
    mean = run.summary.all.ttft.mean
    return inf if mean is None else mean


def _ttft_p99(run: Run) -> float | None:
    return run.summary.all.quantile(run.summary.all.ttft, 0.99)


def _change(one: float | None, other: float | None) -> str:
    """Return the change from `other` to `one` as a text."""
    if one is None or other is None or other <= 0.0 or not isfinite(other):
        return ""
    if not isfinite(one):
        return "infinite"
    return f"{100.0 * (one / other - 1.0):+.1f} %".replace("-", "−")


def _replicas(run: Run) -> str:
    return "1 replica" if run.scenario.replicas == 1 else f"{run.scenario.replicas:,} replicas"


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
