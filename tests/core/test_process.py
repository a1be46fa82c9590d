"""What the program sets for its process: the open-file limit, and the reuse of freed memory."""

import resource
import subprocess
import sys

from router.core.limits import raise_open_files

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


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = min(before[0], 512), before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        told = raise_open_files()
        assert told == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert told == hard or hard == resource.RLIM_INFINITY
        assert raise_open_files() == told
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def pages(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_freed_pages_are_mapped_once() -> None:
    assert pages("kept") < pages("default") / 4
