"""Runs `wrk`, the load generator for closed loops: each client sends its next request after an
answer.

wrk is written in C and takes less CPU per request than any router, so the router under test is busy
all the time. With a slower generator, the router would be idle between requests. It would wake up
once per request, and routers of different cost would look alike.

Each run is a new process with new connections, and lasts whole seconds. Each request differs from
every earlier one in ten digits at the end of its prompt. Only bodies of 1 MB or more are always the
same. Must never read CPU time: `measure` reads it before and after each run.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from router.lab.overhead import shapes
from router.lab.overhead.processes import start, stop

MISSING: Final = "wrk is not installed (Debian: apt install wrk)"
# Bytes; a larger body does not change, because Lua would copy it for each request.
STATIC_BYTES: Final = 1_000_000
RUN_NUMBERS: Final = 10_000_000  # numbers in prompts that are reserved for one run
TIMEOUT_S: Final = 10
# Seconds that wrk may take after the end of the run, if a router answers late.
_GRACE_S: Final = 30.0

# Lua for wrk, which calls `request` before each request, if the script defines it.
_CHANGING: Final = """
local function read(name)
  local file = assert(io.open(name, "rb")); local text = file:read("*a"); file:close(); return text
end
local before, after, count = read("{before}"), read("{after}"), {first}
function request()
  count = count + 1
  return before .. string.format("%010d", count) .. after
end
"""
_STATIC: Final = """
local function read(name)
  local file = assert(io.open(name, "rb")); local text = file:read("*a"); file:close(); return text
end
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = read("{before}") .. "0000000000" .. read("{after}")
"""
_DONE: Final = """
function done(summary, latency, requests)
  local e = summary.errors
  local text = '{"answers":%d,"bytes":%d,"seconds":%.6f,"p50_us":%d,"p99_us":%d,' ..
    '"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d}'
  local file = assert(io.open("FOUND", "w"))
  file:write(string.format(text, summary.requests, summary.bytes, summary.duration / 1e6,
    latency:percentile(50), latency:percentile(99),
    e.connect, e.read, e.write, e.status, e.timeout))
  file:close()
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """A closed loop. `size` is in prompt characters; with `ask`, the answers are streams."""

    connections: int
    size: int = 0
    ask: shapes.Ask | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The counts of wrk in one run."""

    answers: int
    bytes: int
    seconds: float
    p50_us: float
    p99_us: float
    errors: dict[str, int]


class Wrk:
    """Runs wrk on some CPUs, one run at a time."""

    def __init__(self, program: str, folder: Path, cpus: Iterable[int]) -> None:
        self._program = program
        self._folder = folder
        self._cpus = frozenset(cpus)
        self._runs = 0

    def run(self, port: int, load: Load, seconds: int) -> Found:
        """Run wrk against `port` for `seconds`. Raises RuntimeError if wrk fails."""
        self._runs += 1
        script = self._folder / "load.lua"
        script.write_text(self._script(port, load))
        found = self._folder / "found.json"
        found.unlink(missing_ok=True)
        output = self._folder / "wrk.log"
        command = [
            *(self._program, "-t1", f"-c{load.connections}", f"-d{seconds}s"),
            *("--timeout", f"{TIMEOUT_S}s", "-s", str(script)),
            f"http://127.0.0.1:{port}/v1/chat/completions",
        ]
        process = start(command, self._cpus, output)
        try:
            process.wait(seconds + _GRACE_S)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"wrk did not end {_GRACE_S:g} s after its time") from None
        finally:
            stop(process)
        if not found.exists():
            raise RuntimeError(f"wrk failed: {output.read_text(errors='replace')[-300:]}")
        return read(found.read_text())

    def _script(self, port: int, load: Load) -> str:
        prompt = shapes.Prompt(f"127.0.0.1:{port}", load.size, load.ask)
        before, after = prompt.ends
        form = _CHANGING
        if prompt.body_bytes >= STATIC_BYTES:
            form, before = _STATIC, before.partition(b"\r\n\r\n")[2]
        files = {}
        for name, content in (("before", before), ("after", after)):
            path = self._folder / name
            path.write_bytes(content)
            files[name] = str(path)
        first = self._runs * RUN_NUMBERS % 10**10
        done = _DONE.replace("FOUND", str(self._folder / "found.json"))
        return form.format(first=first, **files) + done


def read(text: str) -> Found:
    """Parse the output of the script's `done`."""
    said = json.loads(text)
    kinds = ("connect", "read", "write", "status", "timeout")
    errors = {kind: said.pop(kind) for kind in kinds}
    return Found(**said, errors={kind: count for kind, count in errors.items() if count})


def find() -> str | None:
    """The path of the installed program, or None."""
    return shutil.which("wrk")


def used(program: str | None) -> str:
    """Describe which load generator made which load, for the report."""
    own = "the bench's own generator made paced streams, idle streams and the gaps beside bodies"
    if program is None:
        return f"Load: {MISSING}, so no closed loop of requests was measured; {own}."
    said = subprocess.run([program, "-v"], capture_output=True, text=True).stdout.split()
    name = " ".join(said[:2]) or "wrk"
    return f"Load: {name}, one thread, made every closed loop of requests and streams; {own}."
