"""Artificial outcomes and runs, so that every figure of a report can be computed by hand."""

from collections.abc import Iterable

from router.config.varied import varied
from router.core.errors import Reason
from router.lab.emulator.core.timing import PROFILES, CoreConfig
from router.lab.replay.report.run import Replay, Run
from router.lab.replay.report.slo import Slo
from router.lab.replay.report.summary import Summary
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import Scenario, equal
from router.lab.simulator.traffic import Arrival

SLO = Slo(ttft_s=1.0, tpot_s=0.1)


def outcome(
    at: float = 0.0,
    ttft: float | None = 0.5,
    tpot: float = 0.05,
    *,
    prompt: int = 100,
    output: int = 11,
    cached: int = 0,
    expected: int = 0,
    replica: str = "r0",
    reason: Reason = Reason.OK,
    attempts: int = 1,
    tenant: str = "",
    priority: str = "",
) -> Outcome:
    """One request; without a `ttft` it has no output and ends a second after its arrival."""
    arrival = Arrival(0, at, prompt, output, tenant=tenant, priority=priority)
    made = Outcome(arrival, replica, 0, at)
    made.reason, made.attempts = reason, attempts
    made.cached_tokens, made.expected_tokens = cached, expected
    made.ended = at + 1.0
    if ttft is not None:
        made.first = at + ttft
        made.ended = made.first + tpot * max(output - 1, 0)
    return made


def summary(outcomes: Iterable[Outcome], *, replicas: int = 2, slo: Slo = SLO) -> Summary:
    made = Summary(slo, replicas)
    for one in outcomes:
        made.ended(one)
    return made


def run(
    policy: str = "kv_aware",
    outcomes: Iterable[Outcome] = (),
    *,
    replicas: int = 2,
    routers: int = 1,
    shared: bool = False,
    policy_errors: int = 0,
) -> Run:
    scenario = Scenario(
        groups=equal(replicas, CoreConfig(), PROFILES["fast"]),
        config=varied(queue={"enabled": False}),
        routers=routers,
        shared=shared,
    )
    made = summary(outcomes, replicas=replicas)
    return Run(policy, scenario, made, events=10, policy_errors=policy_errors, wall_s=2.0)


def replay(*runs: Run, title: str = "trace.jsonl") -> Replay:
    return Replay(title, runs, [("seed", "1")], ["prefill: 4 %"], "1 May 2026")


def steady(ttft: float, count: int = 20, **more: object) -> list[Outcome]:
    """Requests one second apart with equal waits; every second one takes a third longer."""
    return [
        outcome(float(n), ttft * (1 + n % 2 / 3), replica=f"r{n % 2}", **more)  # type: ignore[arg-type]
        for n in range(count)
    ]
