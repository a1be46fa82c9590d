"""Measures Hedgerow in four situations in which some routers overload one replica.

The measured figure is the hotspot: the number of replicas times the largest share of the requests
that one replica gets. In the four situations, all clients have one system prompt, many identical
prompts arrive at once, the fleet has just started, or a replica restarts. The restarted replica has
an empty cache and counters of 0 while the other replicas are busy.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from bench.fleet import capacity, engines, run, workloads
from bench.fleet.contestants import Ready
from bench.fleet.script import Conversation, Script, Turn, text
from bench.fleet.statistics import differences, hotspot
from router.lab.overhead.processes import free_port
from router.lab.overhead.routers import PeerError, Running, Site

LEAD_S = 0.5  # seconds before the first request, so that the first reading of the counters is 0
SYSTEM_TOKENS, TAIL_TOKENS, OUTPUT = 1000, 200, 16
LEAST = 0.2  # minimum number of requests of a restarted replica, relative to an even spread


@dataclass(slots=True)
class Outcome:
    """The result of one scenario. `hotspot` is None if it was not measured; `problems` says why."""

    name: str
    hotspot: float | None = None
    requests: int = 0
    shares: list[float] = field(default_factory=list)  # number of requests, by replica
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Counts:
    """Number of requests in each scenario, and the length of the restart scenario."""

    system: int = 480
    identical: int = 64
    cold: int = 256
    # Length of the restart scenario in seconds; longer than a replica's slow start.
    restart_s: float = 40.0

    @classmethod
    def quick(cls) -> Counts:
        return cls(system=120, identical=64, cold=64, restart_s=3.0)


def script(conversations: list[Conversation], measure_from: float = 0.0) -> Script:
    """Return a script of these conversations. Requests from `measure_from` (seconds) on are
    measured.
    """
    return Script(tuple(conversations), measure_from, conversations[-1].at + 1e-6)


def system_prompt(count: int, load: float, seed: int, spec: engines.Spec) -> Script:
    """Return a script: `count` different questions after one system prompt, Poisson arrivals at
    `load`.
    """
    rng = Random(f"system {seed}")
    system = text(rng, SYSTEM_TOKENS, "You are a helpful assistant")
    size = [(float(SYSTEM_TOKENS + TAIL_TOKENS), OUTPUT)]
    rate = load * capacity.saturation(spec.engine(), spec.count, size)
    times = workloads.arrivals(rng, rate)
    return script(
        [
            Conversation(
                LEAD_S + next(times),
                system,
                (Turn(text(rng, TAIL_TOKENS, f"{rng.getrandbits(64):016x}"), OUTPUT),),
            )
            for _ in range(count)
        ]
    )


def identical(count: int, seed: int) -> Script:
    """A script that sends the same prompt `count` times at the same instant."""
    words = text(Random(f"identical {seed}"), SYSTEM_TOKENS, "the same question")
    return script([Conversation(LEAD_S, "", (Turn(words, OUTPUT),)) for _ in range(count)])


def cold_start(count: int, load: float, seed: int, spec: engines.Spec) -> Script:
    """Return a script of the first `count` requests that a fresh fleet gets.

    All prompts differ and have the same length, so that the best routing spreads them evenly.
    """
    rng = Random(f"cold {seed}")
    tokens = round(workloads.UNIQUE_PROMPT[0])
    size = [(float(tokens), workloads.UNIQUE_OUTPUT)]
    rate = load * capacity.saturation(spec.engine(), spec.count, size)
    times = workloads.arrivals(rng, rate)
    return script(
        [
            Conversation(LEAD_S + next(times), "", (Turn(words, workloads.UNIQUE_OUTPUT),))
            for words in (text(rng, tokens, f"{rng.getrandbits(64):016x}") for _ in range(count))
        ]
    )


def restart(seconds: float, load: float, seed: int, spec: engines.Spec) -> Script:
    """Return a script with shared prefixes, measured from BACK_S on (the replica has restarted)."""
    # Enough conversations for up to 100 requests/s.
    users = max(1, round((BACK_S + seconds) * 100 / spec.groups))
    size = workloads.Size(groups=spec.groups, users=users)
    found = run.prepare("shared", load, seed, size, spec).script.conversations
    return script([c for c in found if c.at < BACK_S + seconds], BACK_S)


# Seconds since the start of the script at which a replica is stopped, and at which it has certainly
# restarted.
RESTART_S, BACK_S = 3.0, 5.0


def run_all(
    stage: run.Stage, kind: type[Ready], counts: Counts, load: float, seed: int
) -> list[Outcome]:
    """Run each scenario over fresh engines and a fresh router."""
    spec = stage.spec
    plain: list[tuple[str, Script]] = [
        ("one shared system prompt", system_prompt(counts.system, load, seed, spec)),
        (f"{counts.identical} identical prompts in a tick", identical(counts.identical, seed)),
        ("cold start", cold_start(counts.cold, load, seed, spec)),
    ]
    outcomes = [_guarded(name, _plain, stage, kind, play) for name, play in plain]
    replay = restart(counts.restart_s, load, seed, spec)
    back = _guarded("a restarted replica", _restarted, stage, kind, replay)
    require_use(back)
    return [*outcomes, back]


def require_use(back: Outcome) -> None:
    """Fail the scenario if the restarted (last) replica gets hardly any requests.

    Such a run shows no hotspot, but it proves nothing.
    """
    if not back.shares:
        return
    own, even = back.shares[-1], sum(back.shares) / len(back.shares)
    if own < LEAST * even:
        back.hotspot = None
        back.problems.append(f"it got {own:g} of {back.requests} requests: too few to judge")


def _guarded(
    name: str,
    measure: Callable[[run.Stage, type[Ready], Script, Path], dict[str, Any]],
    stage: run.Stage,
    kind: type[Ready],
    play: Script,
) -> Outcome:
    try:
        with tempfile.TemporaryDirectory(prefix="hedgerow-fleet-") as folder:
            return judge(name, measure(stage, kind, play, Path(folder)))
    except PeerError as error:
        return Outcome(name, problems=[str(error)])


def judge(name: str, played: dict[str, Any]) -> Outcome:
    """Compute the hotspot from the engines' counters before and after the scenario."""
    shares = differences(played["counters"], "requests")
    errors = sum(1 for record in played["records"] if record["error"])
    outcome = Outcome(name, hotspot(shares), round(sum(shares)), shares)
    if errors:
        outcome.problems.append(f"{errors} of {len(played['records'])} requests failed")
    return outcome


def _plain(stage: run.Stage, kind: type[Ready], play: Script, folder: Path) -> dict[str, Any]:
    with (
        engines.Engines(stage.spec, stage.placement.others, log=folder / "log") as fleet,
        Running(kind(Site(folder, fleet.ports, stage.placement))) as peer,
    ):
        return stage.play(play, peer.port, fleet.urls)


def _restarted(stage: run.Stage, kind: type[Ready], play: Script, folder: Path) -> dict[str, Any]:
    """Run the restart scenario: one engine has its own process, which is stopped under load and
    started again.
    """
    spec, cpus, port = stage.spec, stage.placement.others, free_port()
    log = folder / "log"
    found: list[dict[str, Any]] = []
    with engines.Engines(spec, cpus, spec.count - 1, log=log) as most:
        first = engines.Engines(spec, cpus, 1, port, log)
        with first:
            ports, urls = [*most.ports, port], [*most.urls, *first.urls]
            with Running(kind(Site(folder, ports, stage.placement))) as peer:
                player = threading.Thread(
                    target=lambda: found.append(stage.play(play, peer.port, urls))
                )
                player.start()
                time.sleep(RESTART_S)
                first.stop()
                with engines.Engines(spec, cpus, 1, port, log):
                    player.join()
    if not found:
        raise PeerError("the load generator ended")
    return found[0]
