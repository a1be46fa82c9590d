"""Plays a script in the simulator. The result has the format of a run over HTTP.

Must never differ from the run over HTTP in anything that can be equal: fleet, timing, KV cache
size, policy, polls, deadlines and arrivals. `differences` lists what cannot be equal.
"""

from __future__ import annotations

from typing import Any

from bench.fleet.engines import BLOCK_TOKENS, MAX_NUM_SEQS, Spec
from bench.fleet.script import Script
from bench.fleet.truth.outcomes import NOTHING, Outcomes
from bench.fleet.truth.traffic import ScriptTraffic
from router.config.model import Prefix
from router.config.varied import varied
from router.lab.emulator.core.timing import CoreConfig
from router.lab.simulator.scenario import Scenario, equal
from router.lab.simulator.simulation import Simulation


def differences(world: Scenario) -> list[str]:
    """Describe in sentences how the simulation differs from a run over HTTP."""
    return [
        f"The simulated router knows prompts by the engines' blocks of {BLOCK_TOKENS} tokens, the "
        f"real one by {Prefix().block_bytes} bytes of JSON.",
        "The simulated router takes a token to be four bytes; the real one learns what it is.",
        "Routers draw their random numbers, and begin to poll, differently in each run over HTTP.",
        "Over HTTP the timers of emulated engines are up to 1 ms late. In the simulation a message "
        f"takes {world.network_s * 1e3:g} ms each way between router and engine, all else no time.",
    ]


def scenario(spec: Spec, policy: str, seed: int) -> Scenario:
    """Return the simulated fleet of a spec, behind a router with default settings except its
    policy. Raises ValueError for invalid sizes.
    """
    engine = spec.engine()
    core = CoreConfig(max_num_seqs=MAX_NUM_SEQS, num_blocks=spec.blocks, block_size=BLOCK_TOKENS)
    return Scenario(
        groups=equal(spec.count, core, engine.timing),
        config=varied(routing={"policy": policy}),
        sample_s=0.0,
        seed=seed,
    )


def play(script: Script, spec: Spec, policy: str, seed: int = 1) -> dict[str, Any]:
    """Play the script like `Player.play`. Raises the errors of `simulate`."""
    return play_in(scenario(spec, policy, seed), script)


def play_in(world: Scenario, script: Script) -> dict[str, Any]:
    """Play the script in the given scenario (fleet and router)."""
    outcomes = Outcomes(script.measure_from, script.until)
    simulation = Simulation(world, ScriptTraffic(script, "script", world.core.block_size), outcomes)
    before: list[dict[str, float]] = [NOTHING] * world.replicas

    def measuring_begins(_: float) -> None:
        before[:] = _counters(simulation)

    simulation.clock.at(script.measure_from, measuring_begins)
    simulation.run()
    return outcomes.played(script.until - script.measure_from, [before, _counters(simulation)])


def _counters(simulation: Simulation) -> list[dict[str, float]]:
    """The engines' counters, in the format of `engines.read_counters`."""
    return [
        {
            "requests": float(totals.requests - totals.aborted),
            "queried": float(totals.prompt_tokens),
            "hits": float(totals.cached_tokens),
            "preemptions": float(totals.preemptions),
        }
        for totals in (engine.totals() for engine in simulation.engines)
    ]
