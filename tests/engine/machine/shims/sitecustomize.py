"""Imported by every Python process of an engine, because the folder is on its PYTHONPATH.

An engine's core and worker wait for each other by spinning on `sched_yield`. On a GPU machine, core
and worker have CPU cores of their own. On a machine with two CPUs they use both, and everything
else, including the engine's own API server, may not run for half a minute. With this shim, core and
worker sleep for a moment instead.
"""

import os
import time

_MOMENT_S = 50e-6  # seconds; a step of the tiny model takes a hundred times as long

os.sched_yield = lambda: time.sleep(_MOMENT_S)
