"""Defines the simulated fleet, the loads, and the SLOs of each class for each trace.

Must never depend on which order and policy is simulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from bench.fleet import capacity
from bench.gain.contestants import Contestant
from bench.gain.score import Slo
from bench.gain.traffic import Law, Window
from router.config.model import Config
from router.config.varied import varied
from router.lab.emulator.core.timing import PROFILES, CoreConfig
from router.lab.simulator.router import TOKEN_BYTES
from router.lab.simulator.scenario import Scenario, equal

# Llama-2-70B on four H100: the KV cache is 0.9 of the GPUs' memory minus the weights, at 320 KiB
# per token.
PROFILE = "llama2-70b-h100x4"
KV_TOKENS = int((0.9 * 4 * 80e9 - 2 * 69.0e9) / (80 * 8 * 128 * 2 * 2))
SLOTS = 256
REPLICAS = 4
LOADS = (50, 70, 90, 110, 130, 150)  # loads in % of the rate that saturates the fleet


@dataclass(frozen=True, slots=True)
class World:
    """One trace, with SLOs that its prompt lengths allow."""

    name: str
    path: str
    law: Law
    slos: dict[str, Slo]

    @property
    def full_rate(self) -> float:
        """Requests/s at which the fleet saturates with the hits of one cache as large as all
        caches.
        """
        engine = capacity.Engine(PROFILES[PROFILE], KV_TOKENS, SLOTS)
        return capacity.saturation(engine, REPLICAS, self.law.sizes, self.law.reused)

    def scenario(self, contestant: Contestant, seed: int) -> Scenario:
        size = self.law.block_tokens
        usual = Config().classes
        classes = {
            name: replace(
                getattr(usual, name),
                ttft_slo_s=slo.ttft_s,
                tpot_slo_s=slo.tpot_s,
                weight=slo.worth,
            )
            for name, slo in self.slos.items()
        }
        queue: dict[str, Any] = {"policy": contestant.order}
        return Scenario(
            groups=equal(
                REPLICAS,
                CoreConfig(max_num_seqs=SLOTS, num_blocks=KV_TOKENS // size, block_size=size),
                PROFILES[PROFILE],
            ),
            config=varied(
                queue=queue,
                classes=classes,
                routing={"policy": contestant.policy},
                prefix={"block_bytes": int(size * TOKEN_BYTES)},
            ),
            sample_s=0.0,
            seed=seed,
        )

    def traffic(self, load: int, seed: int, requests: int) -> Window:
        law = self.law
        width_s = requests / law.rate
        windows = max(1, int(law.seconds / width_s))
        return Window(
            self.path,
            (seed % windows) * width_s,
            requests,
            load / 100.0 * self.full_rate / law.rate,
            seed,
            law.block_tokens,
        )


# For Azure's trace, whose prompts are short, the targets are the defaults of the classes.
# Mooncake's prompts have 12,000 tokens on average. One in twenty has 40,000 tokens, which take 7 s
# to prefill.
AZURE = {
    "high": Slo(0.5, 0.05, 8.0),
    "normal": Slo(2.0, 0.1, 4.0),
    "low": Slo(10.0, 0.2, 2.0),
}
MOONCAKE = {
    "high": Slo(5.0, 0.1, 8.0),
    "normal": Slo(15.0, 0.2, 4.0),
    "low": Slo(60.0, 0.4, 2.0),
}
