"""The two kinds of process under test: a vLLM engine with direct access, and Hedgerow."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.engine.machine.environment import EngineEnvironment
from tests.engine.machine.processes import Service, eventually
from tests.harness.ports import free_port

MODEL = "tiny"
BLOCK_TOKENS = 32
# Number of blocks: two full contexts, quickly filled, too few for long ones in all slots.
KV_BLOCKS = 256
SLOTS = 8  # sequences that an engine decodes at once; other requests wait in its own queue
CONTEXT_TOKENS = 4096
# Seconds: 70 on an idle machine; up to 200 were measured on a busy one.
ENGINE_READY_WITHIN_S = 600.0
ROUTER_READY_WITHIN_S = 30.0
SHIMS = Path(__file__).parent / "shims"

ENGINE_SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # size of the KV cache in GiB
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "",  # without bytecode each of three processes imports for 30 s
    "PYTHONPATH": str(SHIMS),
}


@dataclass(frozen=True, slots=True)
class EngineState:
    """The values of one scrape of an engine's /metrics."""

    running: int
    waiting: int
    finished: int  # requests that finished normally since the start, without aborts
    generated_tokens: int
    cache_queries: int  # prompt tokens looked up in the prefix cache
    cache_hits: int  # prompt tokens found in the prefix cache
    preemptions: int  # running sequences that were preempted for lack of KV blocks

    @property
    def is_idle(self) -> bool:
        return self.running == 0 and self.waiting == 0


class Engine(Service):
    """One real vLLM with the tiny model. Its port stays the same over restarts.

    `ranks`: the number of data-parallel ranks; each has a KV cache and slots of its own.
    """

    def __init__(
        self,
        name: str,
        environment: EngineEnvironment,
        logs: Path,
        *flags: str,
        slots: int = SLOTS,
        ranks: int = 1,
        settings: Mapping[str, str] = {},
    ) -> None:
        """`settings`: more environment variables."""
        self.ranks = ranks
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        # The `vllm` script cannot be used: its first line names the folder in which it was
        # installed.
        command = [str(environment.python), "-m", "vllm.entrypoints.cli.main", "serve"]
        command += [str(environment.model), "--served-model-name", MODEL]
        command += ["--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--max-model-len", str(CONTEXT_TOKENS), "--max-num-seqs", str(slots)]
        command += ["--dtype", "bfloat16", "--enforce-eager"]
        command += ["--block-size", str(BLOCK_TOKENS)]
        command += ["--num-gpu-blocks-override", str(KV_BLOCKS)]
        command += ["--scheduling-policy", "priority", "--enable-prefix-caching"]
        if ranks > 1:
            command += ["--data-parallel-size", str(ranks)]
        # Rank r publishes on port + r.
        self.kv_events, self.kv_replay = free_port(ranks), free_port(ranks)
        command += ["--kv-events-config", json.dumps(self._kv_events_config())]
        command += flags
        super().__init__(name, command, logs / f"{name}.log", {**ENGINE_SETTINGS, **settings})

    def _kv_events_config(self) -> dict[str, Any]:
        # An endpoint without the * makes the publisher connect instead of bind.
        return {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{self.kv_events}",
            "replay_endpoint": f"tcp://*:{self.kv_replay}",
            "topic": f"kv@127.0.0.1:{self.port}@{MODEL}",
        }

    def wait_until_ready(self) -> None:
        self.wait_ready(lambda: answers_200(f"{self.url}/health"), ENGINE_READY_WITHIN_S)

    def wait_until_idle(self, within_s: float) -> None:
        eventually(
            lambda: self.state().is_idle, within_s, lambda: f"{self.name} idle: {self.state()}"
        )

    def state(self, rank: int | None = None) -> EngineState:
        """The state of one data-parallel rank; `None`: the sum of all ranks."""
        answer = httpx.get(f"{self.url}/metrics", timeout=10.0)
        answer.raise_for_status()
        sums = {
            "vllm:num_requests_running": 0.0,
            "vllm:num_requests_waiting": 0.0,
            "vllm:request_success_total": 0.0,
            "vllm:generation_tokens_total": 0.0,
            "vllm:prefix_cache_queries_total": 0.0,
            "vllm:prefix_cache_hits_total": 0.0,
            "vllm:num_preemptions_total": 0.0,
        }
        for family in text_string_to_metric_families(answer.text):
            for sample in family.samples:
                is_meant = rank is None or sample.labels.get("engine") == str(rank)
                if is_meant and sample.name in sums:
                    sums[sample.name] += sample.value
        return EngineState(*(int(value) for value in sums.values()))


Engines = tuple[Engine, Engine]


class Hedgerow(Service):
    """Hedgerow as its users start it: a process with flags, one data port, one admin port."""

    def __init__(self, replicas: Sequence[str], log: Path, *flags: str) -> None:
        data, admin = free_port(), free_port()
        self.url = f"http://127.0.0.1:{data}"
        self.admin = f"http://127.0.0.1:{admin}"
        command = [sys.executable, "-m", "router", "serve"]
        command += ["--listen", f"127.0.0.1:{data}", "--admin", f"127.0.0.1:{admin}"]
        for replica in replicas:
            command += ["--replica", replica]
        command += flags
        super().__init__("hedgerow", command, log)

    def wait_until_ready(self) -> None:
        self.wait_ready(lambda: answers_200(f"{self.admin}/readyz"), ROUTER_READY_WITHIN_S)

    def records(self) -> list[dict[str, Any]]:
        """The access log so far: one record per ended request."""
        lines = self.log.read_text(errors="replace").splitlines()
        objects = [json.loads(line) for line in lines if line.startswith("{")]
        return [record for record in objects if "method" in record]


@contextmanager
def configured(
    config: Mapping[str, Any], folder: Path, name: str = "hedgerow"
) -> Iterator[Hedgerow]:
    """Run a Hedgerow with this configuration for the duration of the `with` block."""
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps(config))  # JSON is YAML
    router = Hedgerow([], folder / f"{name}.log", "--config", str(file))
    with running(router):
        yield router


@contextmanager
def running(*services: Engine | Hedgerow) -> Iterator[None]:
    """Run these processes for the duration of the `with` block, which begins when all are ready."""
    with ExitStack() as stack:
        for service in services:
            stack.callback(service.kill)
            service.start()
        for service in services:
            service.wait_until_ready()
        yield


def answers_200(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5.0).status_code == 200
    except httpx.TransportError:
        return False
