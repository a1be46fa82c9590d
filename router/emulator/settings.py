"""Everything that can be chosen about one emulated engine, with its default, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from router.emulator.core import CoreConfig
from router.emulator.faults import NONE, Faults
from router.emulator.timing import DEFAULT_PROFILE, PROFILES, Timing

PERSONAS = ("vllm", "sglang", "trtllm", "tgi", "llamacpp")
# These let a request in only when all its KV is sure; the others preempt when blocks run out.
_RESERVING = ("trtllm", "tgi", "llamacpp")
# SGLang's --priority-scheduling-preemption-threshold.
SGLANG_ADVANTAGE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Raises ValueError for sizes that do not fit together."""

    name: str = "emulated-0"
    persona: str = "vllm"
    engine_version: str | None = None  # what it says it is; None: the persona's newest
    models: tuple[str, ...] = ("emulated",)  # the first labels the metrics
    profile: str = DEFAULT_PROFILE
    speed: float = 1.0  # how many times as fast as the profile
    seed: int = 0  # of the faults' probability; answers depend on the prompt alone
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    num_blocks: int = 8192
    block_size: int = 16
    max_model_len: int = 65536
    max_queued_requests: int | None = None  # more are refused; None: the queue has no end
    scheduling_policy: str = "priority"  # or "fcfs", which is every engine's own default
    low_priority_values_first: bool = False  # SGLang only: turns its order round
    forgets_leavers: bool = False  # SGLang only: goes on with streams that nobody reads
    prefix_caching: bool = True
    wait_first_token: bool = False  # stream heads come with the first token, as SGLang's do
    keep_alive_s: float | None = None  # silence before an SSE comment; None: as the persona does
    gauge_lag_s: float = 0.0  # vLLM only: age of the gauges that /metrics shows
    metrics: bool = True  # False: as an engine started without the flag for them
    kv_events: bool = False  # publish what the prefix cache holds over ZMQ
    kv_events_topic: str = ""  # {address}, {url}, {name} and {model} are filled in
    faults: Faults = NONE

    def __post_init__(self) -> None:
        if self.persona not in PERSONAS:
            raise ValueError(f"unknown persona {self.persona!r}; known: {', '.join(PERSONAS)}")
        if not self.models or not all(self.models):
            raise ValueError("an engine serves at least one model, and it has a name")
        if self.profile not in PROFILES:
            known = ", ".join(PROFILES)
            raise ValueError(f"unknown profile {self.profile!r}; known: {known}")
        if not 0 < self.speed < float("inf"):
            raise ValueError("speed must be more than 0")
        if self.keep_alive_s is not None and not 0 < self.keep_alive_s < float("inf"):
            raise ValueError("the keep-alive interval must be more than 0")
        if not 0 <= self.gauge_lag_s < float("inf"):
            raise ValueError("the lag of the gauges is 0 or more seconds")
        if self.gauge_lag_s and self.persona != "vllm":
            raise ValueError(f"the gauges of {self.persona} cannot lag")
        if self.scheduling_policy not in ("fcfs", "priority"):
            raise ValueError("the scheduling policy is fcfs or priority")
        if self.kv_events and not self.prefix_caching:
            raise ValueError("KV events need prefix caching")
        if self.kv_events and self.persona not in ("vllm", "sglang"):
            raise ValueError(f"{self.persona} publishes no KV events over ZMQ")
        try:
            self.kv_events_topic.format(address="", url="", name="", model="")
        except (KeyError, IndexError, ValueError) as err:
            raise ValueError(f"the topic of KV events is not understood: {err!r}") from None
        if self.max_model_len < 1:
            raise ValueError("max_model_len must be at least 1")
        if self.num_blocks * self.block_size < self.max_model_len:
            raise ValueError(
                f"{self.num_blocks} blocks of {self.block_size} tokens cannot hold one request of "
                f"{self.max_model_len} tokens (max_model_len)"
            )
        self.core_config()

    @property
    def by_priority(self) -> bool:
        return self.scheduling_policy == "priority" and self.persona not in ("tgi", "llamacpp")

    def core_config(self) -> CoreConfig:
        displaces = self.persona == "sglang" and self.by_priority
        return CoreConfig(
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            num_blocks=self.num_blocks,
            block_size=self.block_size,
            priority_scheduling=self.by_priority,
            prefix_caching=self.prefix_caching,
            reserve_output=self.persona in _RESERVING,
            preempt_advantage=SGLANG_ADVANTAGE if displaces else None,
            kv_events=self.kv_events,
        )

    def timing(self) -> Timing:
        return PROFILES[self.profile].scaled(1 / self.speed)
