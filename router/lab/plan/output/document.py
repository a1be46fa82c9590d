"""Builds one JSON document of a plan. Missing values are null."""

from __future__ import annotations

import json
from typing import Any, Final

from router.lab.plan.decision.advise import PlaceAdvice, PoolAdvice
from router.lab.plan.output.words import facts, findings
from router.lab.plan.planning import Planned

VERSION: Final = 1  # incremented when a field changes its meaning


def document(made: Planned) -> str:
    """Return the text of the document, with a newline at its end."""
    advice = made.advice
    content = {
        "version": VERSION,
        "now": advice.now_s,
        "window_s": advice.window_s,
        "period_s": advice.period_s,
        "facts": dict(facts(made)),
        "findings": findings(made),
        "cost_per_hour": {
            name: advice.cost(of)
            for name, of in (("plan", "planned"), ("reactive", "reactive"), ("now", "now"))
        },
        "start_cost": {
            name: advice.start_cost(of)
            for name, of in (("plan", "planned"), ("reactive", "reactive"))
        },
        "gap": advice.gap,
        "pools": [_pool(pool) for pool in advice.pools],
        "places": [_place(place, advice.window_s) for place in advice.places],
    }
    return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _pool(pool: PoolAdvice) -> dict[str, Any]:
    return {
        "model": pool.id.place.model,
        "region": pool.id.place.region,
        "type": pool.id.type,
        "now": pool.now,
        "plan": pool.planned,
        "reactive": pool.reactive,
        "cost_per_hour": pool.planned * pool.cost,
    }


def _place(place: PlaceAdvice, window_s: float) -> dict[str, Any]:
    forecast = place.forecast
    return {
        "model": place.place.model,
        "region": place.place.region,
        "binding": place.binding,
        "not_served": place.short,
        "served_in": dict(place.shifted),
        "capacity_tokens_per_s": place.capacity,
        "capacity_at_least": place.is_at_least,
        "peak_tokens_per_s": place.peak,
        "prompt_share": place.prompt_share,
        "utilisation": place.utilisation,
        "batch_share": place.batch_share,
        "forecast": {
            "method": forecast.method,
            "error": forecast.error,
            "distrust": forecast.distrust,
            "tested": [
                {
                    "method": one.method,
                    "error": one.error,
                    "forecasts": one.origins,
                    "note": one.note,
                }
                for one in forecast.tested
            ],
            "tokens_per_s": [value / window_s for value in forecast.mean],
            "low": [value / window_s for value in forecast.low],
            "high": [value / window_s for value in forecast.high],
        },
    }
