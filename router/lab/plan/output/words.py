"""Describes a plan in sentences. All functions are pure."""

from __future__ import annotations

from router.core.text.table import number
from router.lab.plan.decision.advise import REACTIVE, Advice, PlaceAdvice
from router.lab.plan.planning import Planned
from router.lab.replay.report.words import seconds


def findings(made: Planned) -> list[str]:
    """Return sentences about a plan.

    They are about costs, unserved and moved demand, and forecasts, with notes of the sources.
    """
    advice = made.advice
    return [
        *_costs(advice),
        *(line for place in advice.places for line in _place(place)),
        *(forecast_line(place) for place in advice.places if place.forecast.tested),
        *advice.notes,
    ]


def facts(made: Planned) -> list[tuple[str, str]]:
    """Return the basis of a plan, as pairs of a label and a text."""
    observed, types = made.observed, made.types
    hours = observed.windows * observed.window_s / 3600.0
    found = [
        (
            "demand",
            f"{observed.source}; {observed.windows:,} windows of {seconds(observed.window_s)} "
            f"({hours:,.1f} h)",
        ),
        ("types", made.types_source),
    ]
    found += [
        (
            f"measured, {model or 'no model'}",
            f"{'' if one.was_full else 'at least '}{number(one.tokens_per_s)} tokens/s per "
            f"replica, from {one.windows} windows within the SLO, up to {one.busiest:,} answers in "
            f"one{'' if one.was_full else '; no replica was full'}",
        )
        for model, one in observed.throughput.items()
    ]
    found.append(
        (
            "limits",
            f"utilisation {types.utilisation:.0%}, period {seconds(types.period_s)}, no replica "
            f"stops with a waiting request, within {seconds(types.cooldown_s)} after a change, or "
            f"if the forecast utilisation is {types.scale_in_below:.0%} or more",
        )
    )
    if made.advice.gap > 0.0:
        found.append(("solver", f"cost at most {made.advice.gap:.2%} above the optimum"))
    return found


def _costs(advice: Advice) -> list[str]:
    parts = []
    for name, of in (("plan", "planned"), ("reactive rule", "reactive"), ("now", "now")):
        cost = advice.cost(of)
        if cost is None:
            continue
        text = f"{name} {number(cost)} per hour"
        starts = None if of == "now" else advice.start_cost(of)
        if starts:
            text += f" and {number(starts)} for starts"
        parts.append(text)
    return [f"Cost: {'; '.join(parts)}."]


def _place(place: PlaceAdvice) -> list[str]:
    found = []
    if place.is_at_least:
        found.append(
            f"{place.place}: no replica was full in the log, so a replica serves at least the "
            "measured throughput, and perhaps much more. The plan has at most the present number "
            "of replicas. To plan for more, name the throughput in a file with --types."
        )
    if place.short > 0.0:
        found.append(
            f"{place.place}: {place.short:.1%} of the demand in the worst window is above the "
            f"utilisation limit; binding: {place.binding}."
        )
    if place.binding == REACTIVE:
        found.append(f"{place.place}: the reactive rule decides: {place.forecast.distrust}.")
    found += [
        f"{place.place}: up to {share:.1%} of the demand is served in {region}."
        for region, share in place.shifted.items()
    ]
    if place.batch_share is not None:
        found.append(
            f"{place.place}: class batch may use {place.batch_share:.0%} of the slots until the "
            "next plan (classes.batch.slots)."
        )
    return found


def forecast_line(place: PlaceAdvice) -> str:
    """Return a sentence with the methods and their errors on held-out windows."""
    tests = [
        f"{one.method}: {one.note}"
        if one.error is None
        else f"{one.method}: error {one.error:.1%} in {one.origins} forecasts"
        for one in place.forecast.tested
    ]
    return f"Forecast for {place.place}: {'; '.join(tests)}."
