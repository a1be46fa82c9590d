"""All settings of one emulated engine, with their defaults."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from router.fleet.engines.common.priority import SILENT
from router.fleet.engines.common.registry import ENGINES
from router.lab.emulator.core.engine_core import CoreConfig
from router.lab.emulator.core.timing import DEFAULT_PROFILE, PROFILES, Timing
from router.lab.emulator.http.faults import NONE, Faults

# The engines that can be emulated. `http/personas` has a file for each, with the engine's name.
PERSONAS = tuple(name for name, engine in ENGINES.items() if engine.is_recognised)


def persona_named(name: str) -> Any:
    """Return the persona class `PERSONA` in the file with that name, which imports this module."""
    return import_module(f"router.lab.emulator.http.personas.{name}").PERSONA


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The settings of one engine. Raises ValueError for sizes that do not fit together."""

    name: str = "emulated-0"
    persona: str = PERSONAS[0]
    engine_version: str | None = None  # reported version; None: the persona's newest
    models: tuple[str, ...] = ("emulated",)  # served models; metrics are labelled with the first
    data_parallel_size: int = 1  # number of ranks behind one port; only some personas use it
    adapters: tuple[str, ...] = ()  # LoRA adapters of the first model; only some personas use them
    max_loras: int = 1  # maximum number of adapters in the GPU's memory at once
    lora_load_s: float = 0.0  # seconds to load an adapter into the GPU's memory
    profile: str = DEFAULT_PROFILE
    speed: float = 1.0  # multiple of the profile's speed
    seed: int = 0  # seed of the faults' random draws; answers depend on the prompt alone
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    num_blocks: int = 8192
    block_size: int = 16
    max_model_len: int = 65536
    # Maximum number of waiting requests; more are refused. None: no limit. The personas of some
    # engines count running requests, too.
    max_queued_requests: int | None = None
    scheduling_policy: str = "priority"  # or "fcfs", which is the default of the real engines
    # True: lower priority numbers go first. Only personas that can reverse the order use this.
    low_priority_values_first: bool = False
    # True: streams of disconnected clients run to their end. Only some personas use this.
    forgets_leavers: bool = False
    prefix_caching: bool = True
    wait_first_token: bool = False  # True: a stream's response head is sent with the first token
    # Seconds without data after which a stream gets an SSE comment. None: the persona's default.
    keep_alive_s: float | None = None
    # Number of tokens in an event of a stream, after the first event with one token.
    stream_interval: int = 1
    gauge_lag_s: float = 0.0  # age of the gauges in /metrics, in seconds; only some personas use it
    metrics: bool = True  # False: like an engine started without its metrics flag
    kv_events: bool = False  # True: changes of the prefix cache are published over ZMQ
    kv_events_topic: str = ""  # ZMQ topic; {address}, {url}, {name} and {model} are replaced
    faults: Faults = NONE

    def __post_init__(self) -> None:
        if self.persona not in PERSONAS:
            raise ValueError(f"unknown persona {self.persona!r}; known: {', '.join(PERSONAS)}")
        if not self.models or not all(self.models):
            raise ValueError("an engine must serve at least one model with a name")
        persona, engine = persona_named(self.persona), ENGINES[self.persona]
        if self.adapters and not persona.lists_adapters:
            raise ValueError(f"the persona {self.persona} has no adapters")
        if self.data_parallel_size < 1:
            raise ValueError("an engine has at least one data-parallel rank")
        if self.data_parallel_size > 1 and not persona.has_ranks:
            raise ValueError(f"the persona {self.persona} has no data-parallel ranks")
        if self.max_loras < 1 or not 0 <= self.lora_load_s < float("inf"):
            raise ValueError("at least one adapter fits, and loading takes 0 or more seconds")
        if self.profile not in PROFILES:
            known = ", ".join(PROFILES)
            raise ValueError(f"unknown profile {self.profile!r}; known: {known}")
        if not 0 < self.speed < float("inf"):
            raise ValueError("speed must be more than 0")
        if self.keep_alive_s is not None and not 0 < self.keep_alive_s < float("inf"):
            raise ValueError("the keep-alive interval must be more than 0")
        if not 0 <= self.gauge_lag_s < float("inf"):
            raise ValueError("the lag of the gauges is 0 or more seconds")
        if self.gauge_lag_s and not persona.gauges_lag:
            raise ValueError(f"the gauges of {self.persona} cannot lag")
        if self.scheduling_policy not in ("fcfs", "priority"):
            raise ValueError("the scheduling policy is fcfs or priority")
        if self.kv_events and not self.prefix_caching:
            raise ValueError("KV events need prefix caching")
        if self.kv_events and engine.publisher is None:
            raise ValueError(f"{self.persona} publishes no KV events over ZMQ")
        try:
            self.kv_events_topic.format(address="", url="", name="", model="")
        except (KeyError, IndexError, ValueError) as err:
            raise ValueError(f"the topic of KV events is not understood: {err!r}") from None
        if self.stream_interval < 1:
            raise ValueError("an event of a stream has at least one token")
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
        return self.scheduling_policy == "priority" and ENGINES[self.persona].dialect is not SILENT

    def core_config(self) -> CoreConfig:
        persona = persona_named(self.persona)
        return CoreConfig(
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            num_blocks=self.num_blocks,
            block_size=self.block_size,
            priority_scheduling=self.by_priority,
            prefix_caching=self.prefix_caching,
            reserve_output=persona.reserves_output,
            preempt_advantage=persona.displaces_by if self.by_priority else None,
            kv_events=self.kv_events,
        )

    def timing(self) -> Timing:
        return PROFILES[self.profile].scaled(1 / self.speed)
