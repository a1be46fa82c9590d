"""Runs one command and kills its whole process group when the parent process ends.

`python -m tests.engine.machine.guard COMMAND...` must be started as the leader of its own session,
with a pipe on standard input that the parent keeps open and never writes to. When the pipe ends,
because the parent closed it or died, or when the command ends, everything in the group is killed:
an engine is several processes, and a remaining one holds gigabytes and both cores.
"""

import os
import select
import signal
import subprocess
import sys


def main(command: list[str]) -> None:
    if os.getpgrp() != os.getpid():
        sys.exit("guard: must lead its own process group, or it would kill its parent's")
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    ended = os.pidfd_open(child.pid)
    readable, _, _ = select.select([0, ended], [], [])
    if ended in readable:
        # The last line of the log: a killed group has no exit code to report.
        print(f"guard: the command ended with code {child.wait()}", flush=True)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
