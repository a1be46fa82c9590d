"""CPU time and memory of a process tree include all its processes."""

import subprocess
import sys
import time

from router.lab.overhead import cpu

# A parent whose child uses CPU, both until stdin closes.
CHILD = (
    "import os, sys, threading\n"
    "threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()\n"
    "while True: pass\n"
)
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


def test_a_childs_time_counts_and_its_memory_too() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE)
    try:
        until = time.monotonic() + 20
        while len(pids := cpu.tree(parent.pid)) < 2:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert pids[0] == parent.pid
        before = after = cpu.read(pids)
        while cpu.spent_s(before, after) < 0.03:
            assert time.monotonic() < until
            time.sleep(0.01)
            after = cpu.read(pids)
        size = cpu.memory(pids)
        assert size.rss >= size.pss > 1_000_000
        assert cpu.waited_s(before, after) >= 0
        assert cpu.user_s(before, after) >= 0
    finally:
        assert parent.stdin is not None
        parent.stdin.close()
        parent.wait(10)


def test_threads_give_nanoseconds_and_an_ended_thread_falls_back_to_ticks() -> None:
    before = cpu.Reading(ticks={1: 1.0}, threads={1: {"1": 500, "2": 100}})
    after = cpu.Reading(ticks={1: 1.5}, threads={1: {"1": 900, "2": 150, "3": 50}})
    assert cpu.spent_s(before, after) == 500e-9
    ended = cpu.Reading(ticks={1: 1.5}, threads={1: {"1": 900}})
    assert cpu.spent_s(before, ended) == 0.5
    born = cpu.Reading(ticks={1: 1.0, 2: 0.25}, threads=before.threads)
    assert cpu.spent_s(before, born) == 0.25


def test_a_process_that_is_gone_is_left_out() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait(20)
    assert cpu.read([child.pid]).ticks == {}
    assert cpu.memory([child.pid]) == cpu.Memory(0, 0)
