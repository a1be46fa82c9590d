"""Everything that can be chosen about one emulated engine, with its default, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from router.emulator.core import CoreConfig
from router.emulator.faults import NONE, Faults
from router.emulator.timing import DEFAULT_PROFILE, PROFILES, Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Raises ValueError for sizes that do not fit together."""

    name: str = "emulated-0"
    models: tuple[str, ...] = ("emulated",)  # the first labels the metrics
    profile: str = DEFAULT_PROFILE
    seed: int = 0  # of the faults' probability; answers depend on the prompt alone
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    num_blocks: int = 8192
    block_size: int = 16
    max_model_len: int = 65536
    scheduling_policy: str = "priority"  # or "fcfs", which is vLLM's own default
    prefix_caching: bool = True
    wait_first_token: bool = False  # stream heads come with the first token, as SGLang's do
    faults: Faults = NONE

    def __post_init__(self) -> None:
        if not self.models or not all(self.models):
            raise ValueError("an engine serves at least one model, and it has a name")
        if self.profile not in PROFILES:
            known = ", ".join(PROFILES)
            raise ValueError(f"unknown profile {self.profile!r}; known: {known}")
        if self.scheduling_policy not in ("fcfs", "priority"):
            raise ValueError("the scheduling policy is fcfs or priority")
        if self.max_model_len < 1:
            raise ValueError("max_model_len must be at least 1")
        if self.num_blocks * self.block_size < self.max_model_len:
            raise ValueError(
                f"{self.num_blocks} blocks of {self.block_size} tokens cannot hold one request of "
                f"{self.max_model_len} tokens (max_model_len)"
            )
        self.core_config()

    def core_config(self) -> CoreConfig:
        return CoreConfig(
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            num_blocks=self.num_blocks,
            block_size=self.block_size,
            priority_scheduling=self.scheduling_policy == "priority",
            prefix_caching=self.prefix_caching,
        )

    def timing(self) -> Timing:
        return PROFILES[self.profile]
