"""Starts the emulated engines of a run, and reads their counters.

Requests are sent over real HTTP; the engines only emulate the time that a GPU would need. Every
engine has the timing of an 8B model on one GPU, sped up so that minutes of a real fleet pass in
seconds. It has a paged KV cache with prefix hits, like vLLM. All engines share one process; the
engine that `scenarios.py` restarts has its own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from bench.fleet.capacity import Engine
from bench.fleet.workloads import GROUPS, KV_SHARE, PREFIX_TOKENS
from router.app.emulated_fleet import EmulatedFleet, FleetError
from router.lab.emulator.core.timing import PROFILES

MODEL = "bench"
COUNT = 8
PROFILE = "realistic"
SPEED = 4.0
BLOCK_TOKENS = 16
MAX_NUM_SEQS = 256


@dataclass(frozen=True, slots=True)
class Spec:
    """Size and speed of a fleet."""

    count: int = COUNT
    # Number of shared prefixes; all together fill the share KV_SHARE of the KV caches.
    groups: int = GROUPS
    speed: float = SPEED  # how many times faster than the timing profile
    more: tuple[str, ...] = ()  # further options of `hedgerow emulate`

    @property
    def blocks(self) -> int:
        """Number of KV blocks of one engine."""
        tokens = self.groups * PREFIX_TOKENS / (self.count * KV_SHARE)
        return round(tokens / BLOCK_TOKENS)

    def engine(self) -> Engine:
        timing = PROFILES[PROFILE].scaled(1 / self.speed)
        return Engine(timing, self.blocks * BLOCK_TOKENS, MAX_NUM_SEQS)

    def words(self) -> str:
        share = self.groups * PREFIX_TOKENS / (self.count * self.blocks * BLOCK_TOKENS)
        return (
            f"{self.count} emulated engines, timing profile {PROFILE} at {self.speed:g} times its "
            f"speed, {self.blocks * BLOCK_TOKENS} tokens of KV cache each; all shared prefixes "
            f"together need {share:.0%} of the fleet's."
        )

    def options(self) -> list[str]:
        """Command-line options of `hedgerow emulate`."""
        return [
            *("--profile", PROFILE, "--speed", str(self.speed)),
            *("--num-blocks", str(self.blocks), "--block-size", str(BLOCK_TOKENS)),
            *("--max-model-len", str(self.blocks * BLOCK_TOKENS)),
            *("--max-num-seqs", str(MAX_NUM_SEQS)),
            *("--scheduling-policy", "fcfs"),
            *self.more,
        ]


class Engines:
    """Runs `count` fresh engines (default: as many as `spec` says) during the `with` block."""

    def __init__(
        self,
        spec: Spec,
        cpus: Iterable[int] = (),
        count: int | None = None,
        port: int = 0,
        log: Path | None = None,
        oracle: bool = False,
    ) -> None:
        """`log` is the file for the engines' standard error: a router that tries gRPC on an
        engine's port causes pages of error messages. `oracle` opens one more port, which sends each
        request to the best engine.
        """
        options = spec.options() + (["--port", str(port)] if port else [])
        self._log = log
        module = "bench.fleet.oracle" if oracle else "router.lab.emulator"
        self._fleet = EmulatedFleet(count or spec.count, MODEL, options, module=module)
        self._cpus = frozenset(cpus)
        self._runner = asyncio.Runner()

    @property
    def pid(self) -> int:
        return self._fleet.pid or 0

    @property
    def urls(self) -> list[str]:
        return self._fleet.urls

    @property
    def ports(self) -> list[int]:
        return [urlsplit(url).port or 0 for url in self._fleet.urls]

    @property
    def oracle(self) -> int:
        """The port of the oracle; 0 if there is no oracle."""
        return urlsplit(self._fleet.beside).port or 0

    def __enter__(self) -> Engines:
        try:
            with _stderr_to(self._log):
                self._runner.run(self._fleet.start())
        except FleetError as error:
            self._runner.close()
            said = self._log.read_text(errors="replace").strip() if self._log else ""
            raise FleetError(f"{error}: {said[-400:]}") from None
        if self._cpus:
            os.sched_setaffinity(self.pid, self._cpus)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._runner.close()

    def stop(self) -> None:
        """Stop the engines now. A second call does nothing."""
        self._runner.run(self._fleet.stop())


@contextmanager
def _stderr_to(path: Path | None) -> Iterator[None]:
    """Child processes that are started in the `with` block write their stderr to `path`.

    If `path` is None, they inherit this process's stderr.
    """
    if path is None:
        yield
        return
    kept = os.dup(2)
    try:
        with open(path, "ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


# vLLM's metric name -> name of the counter in this bench. Emulated engines use vLLM's names.
_WANTED = {
    b"vllm:prefix_cache_queries_total": "queried",
    b"vllm:prefix_cache_hits_total": "hits",
    b"vllm:num_preemptions_total": "preemptions",
    b"vllm:request_success_total": "requests",
    b"vllm:num_requests_running": "requests",
    b"vllm:num_requests_waiting": "requests",
}


def read_counters(exposition: bytes) -> dict[str, float]:
    """Return the totals of one engine from its metrics page.

    `requests` counts all requests that the engine accepted: finished, running and waiting.
    """
    found = dict.fromkeys(_WANTED.values(), 0.0)
    for line in exposition.splitlines():
        name = line.partition(b"{")[0]
        if name in _WANTED:
            found[_WANTED[name]] += float(line.rsplit(b" ", 1)[1])
    return found


async def counters(url: str) -> dict[str, float]:
    """Read one engine's counters from its /metrics; all are 0 if the engine does not answer."""
    parts = urlsplit(url)
    try:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except OSError:
        return read_counters(b"")
    try:
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
        return read_counters(await reader.read(-1))
    finally:
        writer.close()
        await writer.wait_closed()
