"""The cases that are simulated and run over HTTP: small workloads on small fleets, and single
requests on an idle fleet.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from bench.fleet import run, workloads
from bench.fleet.engines import Spec
from bench.fleet.prose import text
from bench.fleet.script import Conversation, Script, Turn

LOAD = 0.7  # requests/s as a share of the rate at which the fleet saturates without cache hits
OVERLOAD = 1.3
# Shared prefixes per replica; the KV cache of an engine is as large as in the fleet bench.
GROUPS_EACH = 18
SIZE = workloads.Size(users=5, chat_warm_s=4.0, chat_s=14.0, unique_warm_s=2.0, unique_s=14.0)
_IDLE_EVERY_S = 0.4
_IDLE_PROMPTS = (200, 4000)  # minimum and maximum tokens of a prompt
_IDLE_OUTPUT = 8


@dataclass(frozen=True, slots=True)
class Case:
    """One workload on one fleet."""

    workload: str  # a key of `workloads.WORKLOADS`
    replicas: int
    load: float
    policy: str = "kv_aware"

    @property
    def name(self) -> str:
        return f"{self.workload}, {self.replicas} replicas, {self.load:.0%} load, {self.policy}"

    @property
    def spec(self) -> Spec:
        return Spec(count=self.replicas, groups=GROUPS_EACH * self.replicas)

    def prepare(self, seed: int) -> run.Workload:
        spec = self.spec
        size = workloads.Size(
            spec.groups,
            SIZE.users,
            SIZE.chat_warm_s,
            SIZE.chat_s,
            SIZE.unique_warm_s,
            SIZE.unique_s,
        )
        return run.prepare(self.workload, self.load, seed, size, spec)


# If routing is partly random, two runs over HTTP differ as much as a run and its simulation. Round
# robin is not random; the error of its cases comes from the engine model and from the transport of
# tokens.
CASES = {
    "chat": Case("chat", 4, LOAD),
    "shared": Case("shared", 4, LOAD),
    "unique": Case("unique", 2, LOAD),
    "turns": Case("unique", 2, LOAD, "round_robin"),
    # Shows the maximum throughput of a fleet.
    "overload": Case("unique", 2, OVERLOAD, "round_robin"),
}


def idle(count: int, seed: int) -> Script:
    """Return a script of random lengths. Each request is sent after the previous one has ended."""
    rng = Random(f"idle {seed}")
    lengths = [rng.randint(*_IDLE_PROMPTS) for _ in range(count)]
    conversations = tuple(
        Conversation(
            (number + 1) * _IDLE_EVERY_S,
            "",
            (Turn(text(rng, tokens, f"{rng.getrandbits(64):016x}"), _IDLE_OUTPUT),),
        )
        for number, tokens in enumerate(lengths)
    )
    return Script(conversations, 0.0, (count + 1) * _IDLE_EVERY_S)
