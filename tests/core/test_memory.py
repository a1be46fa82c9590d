"""Freed large blocks are reused, so that the kernel need not map and clear their pages again."""

from __future__ import annotations

import subprocess
import sys

# Prints the number of pages mapped for fifty bodies of 4 MB, each received in pieces and joined.
PROGRAM = """
import resource, sys
from router.core.memory import keep_large_blocks
if sys.argv[1] == "kept":
    assert keep_large_blocks()
def body():
    pieces = [bytes([65 + at]) * (256 << 10) for at in range(16)]
    return len(b"".join(pieces))
body(), body()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    body()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_pages_are_mapped_once() -> None:
    assert pages("kept") < pages("default") / 4
