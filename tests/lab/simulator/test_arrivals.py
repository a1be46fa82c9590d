"""The arrival of a simulated request: the sequence of the proxy (`dispatch/driver/placing.py`)."""

from dataclasses import replace
from pathlib import Path

import pytest

from router.config.keys import KeyLine
from router.core.errors import Reason
from router.dispatch import dispatcher
from router.dispatch.driver import placing
from router.lab.simulator import router as simulator
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.simulation import Simulation
from router.lab.simulator.traffic import Arrival
from tests.lab.simulator.worlds import Kept, Script, world

ROUTER = Path(__file__).parents[3] / "router"
# Each step of an arrival and of a change of the fleet, and the only file that has it.
STEPS = {
    ".allowed = key.": "dispatch/driver/placing.py",
    "].state(": "dispatch/driver/placing.py",
    "[Reason.SUSPECT_REQUEST]": "dispatch/driver/placing.py",
    "deadlines.limited(": "dispatch/driver/placing.py",
    "tenants.enter(": "dispatch/driver/placing.py",
    ".tenant_share = share": "dispatch/driver/placing.py",
    "= with_steps(": "dispatch/driver/placing.py",
    ".on_fleet_change(": "dispatch/chooser.py",
    ".has_spot = any(": "dispatch/chooser.py",
}


def sources() -> dict[str, str]:
    folders = (ROUTER / "app", ROUTER / "dispatch", ROUTER / "lab" / "simulator")
    found = [path for folder in folders for path in folder.rglob("*.py")]
    return {str(path.relative_to(ROUTER)): path.read_text() for path in found}


def ended(limits: dict[str, float], *arrivals: Arrival) -> list[Outcome]:
    """Play requests of a key with these limits. Returns the outcomes by number."""
    line = KeyLine(name="a", hash=f"sha256:{1:064x}", **limits)  # type: ignore[arg-type]
    kept = Kept()
    simulation = Simulation(replace(world(), keys={"A": line}), Script(arrivals), kept)
    simulation.run()
    assert not [leak for router in simulation.routers for leak in router.leaks()]
    return sorted(kept.outcomes, key=lambda one: one.arrival.number)


def asked(number: int, at: float, *, kind: str = "chat", deadline_s: float = 60.0) -> Arrival:
    return Arrival(number, at, 100, 3, tenant="A", is_known=True, kind=kind, deadline_s=deadline_s)


def test_the_proxy_and_the_simulator_call_one_sequence() -> None:
    assert dispatcher.admit is placing.admit  # type: ignore[attr-defined]
    assert simulator.admit is placing.admit  # type: ignore[attr-defined]
    callers = sorted(path for path, text in sources().items() if " admit(" in text)
    assert callers == [
        "dispatch/dispatcher.py",
        "dispatch/driver/placing.py",
        "lab/simulator/router.py",
    ]


@pytest.mark.parametrize("step", STEPS)
def test_each_step_is_written_once(step: str) -> None:
    found = {path: text.count(step) for path, text in sources().items() if step in text}
    assert found == {STEPS[step]: 1}


def test_a_request_whose_deadline_has_passed_uses_no_limit() -> None:
    arrivals = [asked(n, 0.1 * n, deadline_s=60.0 if n > 2 else 0.0) for n in range(6)]
    reasons = [one.reason for one in ended({"requests_per_minute": 2}, *arrivals)]
    assert reasons == [Reason.DEADLINE_PASSED] * 3 + [Reason.OK] * 2 + [Reason.KEY_REQUESTS]


def test_a_passed_deadline_is_named_before_a_limit() -> None:
    arrivals = [asked(0, 0.0), asked(1, 0.1, deadline_s=0.0)]
    reasons = [one.reason for one in ended({"requests_per_minute": 1}, *arrivals)]
    assert reasons == [Reason.OK, Reason.DEADLINE_PASSED]


@pytest.mark.parametrize(("kind", "last"), [("embeddings", Reason.OK), ("chat", Reason.KEY_TOKENS)])
def test_a_request_without_output_reserves_its_prompt_only(kind: str, last: Reason) -> None:
    # A minute's tokens are three prompts. With its assumed output, a request takes half of them.
    arrivals = [asked(n, 0.001 * n, kind=kind) for n in range(3)]
    reasons = [one.reason for one in ended({"tokens_per_minute": 300}, *arrivals)]
    assert reasons == [Reason.OK, Reason.OK, last]
