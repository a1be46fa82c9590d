"""A program that simulates one scenario and prints every field of every outcome and total.

Must never print a value that depends on the process, such as an address or a date.
"""

from dataclasses import fields

from router.config.model import Config, Hedging, Preemption, Queue
from router.lab.emulator.core.timing import PROFILES, CoreConfig
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import Fault, Polls, Scenario, Straggling, equal
from router.lab.simulator.simulation import simulate
from router.lab.simulator.totals import Totals
from router.lab.simulator.traffic import Arrival, Traffic
from router.lab.simulator.workloads import Chat, Mix, PowerUser, Shared, Unique
from tests.lab.simulator.worlds import Kept

SIZE = 128


def scenario() -> Scenario:
    """Eight replicas and two routers; one replica is slow for a while, another one dies."""
    return Scenario(
        groups=equal(
            8,
            CoreConfig(num_blocks=400, block_size=SIZE, priority_scheduling=True),
            PROFILES["realistic"],
        ),
        config=Config(
            queue=Queue(policy="fair", preemption=Preemption(enabled=True)),
            hedging=Hedging(policy="fixed", options={"delay_s": 0.7}, budget=0.5, utilisation=1.0),
        ),
        routers=2,
        polls=Polls(loss=0.05),
        straggling=Straggling(share=0.1),
        faults=(
            Fault(at=20.0, replica=1, kind="slow", until=30.0, factor=5.0),
            Fault(at=35.0, replica=2, kind="kill", until=50.0),
        ),
    )


def traffic() -> Traffic:
    """Five sources in three classes. For five seconds they exceed the fleet's capacity."""
    return Mix(
        Chat(rate=2.0, duration_s=60.0),
        Shared(rate=2.0, duration_s=60.0, groups=20, output_tokens=100),
        Unique(rate=2.0, duration_s=60.0, priority="high"),
        Unique(rate=2.0, duration_s=60.0, seed=2, priority="batch", tenant="nightly"),
        PowerUser(rate=100.0, begins_s=20.0, duration_s=5.0),
    )


def lines(totals: Totals, outcomes: list[Outcome]) -> list[str]:
    """One line for each request, in the order of their ends, and one for each total."""
    found = []
    names = [name for name in dir(Outcome) if not name.startswith("_")]
    for one in outcomes:
        words = [f"{name}={_word(getattr(one, name))}" for name in names]
        found.append(" ".join(words))
    found += [f"{field.name}: {_word(getattr(totals, field.name))}" for field in fields(totals)]
    return found


def _word(value: object) -> str:
    if isinstance(value, Arrival):
        return f"{value.number}"
    return value.hex() if isinstance(value, float) else repr(value)


if __name__ == "__main__":
    kept = Kept()
    totals = simulate(scenario(), traffic(), kept)
    print("\n".join(lines(totals, kept.outcomes)))
