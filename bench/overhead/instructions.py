"""Instructions the router executes for one JSON request in memory, counted by callgrind.

Runs the request path of `internal.Bench` (head, queue, routing, body, response, access log record;
no sockets) under `valgrind --tool=callgrind` twice, with different numbers of requests. The
difference of the two totals divided by the difference in requests leaves out the start of Python.
The counted process has a clock of its own, which moves by `TICK_S` whenever it is read: under
valgrind a request takes as long as fifty, and what runs once a second would count fifty times. So
the count does not depend on the machine's clock or on other processes. It changes with the CPython
build, the compiler and the libraries, so compare two trees only on one machine.

Needs valgrind (Debian package `valgrind`). Prints one JSON object: instructions per request.

Must never: measure time.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import count as counter
from pathlib import Path
from typing import Final

from router.core.build import is_compiled

FEW: Final = 500  # requests of the shorter run; all memos are warm by then
MANY: Final = 2500
TICK_S: Final = 2.0**-18  # 4 µs; a request reads the clock some six times
_TOTAL: Final = re.compile(r"Collected : (\d+)")


async def serve(requests: int) -> None:
    """Send so many requests through the router, in memory."""
    # Here, because modules take the clock's function when they are imported.
    from bench.overhead import shapes
    from bench.overhead.internal import Bench

    with tempfile.TemporaryDirectory(prefix="hedgerow-bench-") as folder:
        bench = Bench(Path(folder))
        try:
            prompt = shapes.Prompt("127.0.0.1:8080")
            gc.freeze()
            for _ in range(requests):
                await bench.one(prompt.next())
            await asyncio.sleep(0)
        finally:
            bench.close()


def count(requests: int) -> int:
    """Instructions of a whole process that serves so many requests. Raises RuntimeError."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise RuntimeError("valgrind is not installed (Debian package valgrind)")
    command = [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable]
    command += ["-m", "bench.overhead.instructions", "--serve", str(requests)]
    # Hashes of strings decide how dictionaries collide: fixed, or two runs differ by chance.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONMALLOC": "pymalloc"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    found = _TOTAL.search(done.stderr)
    if done.returncode or found is None:
        raise RuntimeError(f"the counted process failed: {done.stderr[-2000:]}")
    return int(found[1])


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--serve":
        time.monotonic = counter(1000.0, TICK_S).__next__
        asyncio.run(serve(int(sys.argv[2])))
        return
    per_request = (count(MANY) - count(FEW)) / (MANY - FEW)
    print(json.dumps({"instructions_per_request": round(per_request), "compiled": is_compiled()}))


if __name__ == "__main__":
    main()
