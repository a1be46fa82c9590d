"""The JSON document."""

from __future__ import annotations

import json

import pytest

from router.lab.plan.output.document import document
from tests.lab.plan.output.plans import plan


def test_the_plan_is_in_the_document() -> None:
    found = json.loads(document(plan()))
    pools = {(one["model"], one["region"]): one for one in found["pools"]}
    assert pools["m", "us"] == {
        "model": "m",
        "region": "us",
        "type": "gpu",
        "now": 1,
        "plan": 3,
        "reactive": 2,
        "cost_per_hour": 6.0,
    }
    assert found["cost_per_hour"] == {"plan": 20.0, "reactive": 18.0, "now": 12.0}
    eu = found["places"][0]
    assert (eu["model"], eu["region"], eu["binding"]) == ("m", "eu", "demand")
    assert eu["served_in"] == {"us": pytest.approx(1 / 3, abs=1e-3)}
    assert eu["forecast"]["high"][0] == pytest.approx(600.0)
    assert eu["forecast"]["error"] == 0.1
    assert found["now"] == 1_772_323_200.0 + 200 * 900.0


def test_unknown_numbers_are_null() -> None:
    found = json.loads(document(plan(known=False)))
    assert found["pools"][0]["now"] is None
    assert found["cost_per_hour"]["now"] is None
