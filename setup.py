"""Compiles the hot path to C with mypyc when a wheel is built; all else is in pyproject.toml.

The sources are plain Python and run as they are, for much more CPU per request: in a checkout
(`pip install -e`), without a C compiler, or with HEDGEROW_COMPILE=0.
"""

from __future__ import annotations

import os
import sys
from glob import glob
from typing import Any

from setuptools import setup

HOT = (
    "router/core/lease.py",
    "router/core/urgency.py",
    "router/wire/*.py",
    "router/intake/*.py",
    "router/admission/*.py",
    "policies/facts.py",
    "policies/routing/costs.py",
    "policies/routing/prompts.py",
    "policies/queueing/accounts.py",
    "policies/queueing/flows.py",
    "policies/queueing/keyed.py",
    "policies/queueing/ranked.py",
    "policies/queueing/ripening.py",
    "policies/queueing/sliding.py",
    "policies/queueing/ticket.py",
    "router/fleet/prefix.py",
    "router/fleet/knowledge.py",
    "router/fleet/health.py",
    "router/fleet/table.py",
    "router/dispatch/*.py",
    "router/dispatch/continuation/*.py",
    "router/observe/metrics.py",
    "router/observe/milliseconds.py",
    "router/observe/salt.py",
    "router/observe/tenant_usage.py",
    "router/emulator/core.py",
    "router/emulator/queue.py",
    "router/emulator/batch.py",
    "router/emulator/scheduler.py",
    "router/emulator/leap.py",
)
# A request runs through more code than the nearest cache holds. Direct calls take less of it.
FLAGS = ["-fvisibility=hidden", "-fno-semantic-interposition", "-fno-plt"]
# Structs of msgspec, which is C already, and packages' empty files.
NOT_HOT = {
    "router/wire/heads.py",
    "router/intake/fields.py",
    "router/dispatch/usage_shapes.py",
    "router/dispatch/continuation/shapes.py",
}


def extensions() -> list[Any]:
    """What mypyc makes of the hot path; nothing where it is not asked for or cannot be had."""
    asked = {"bdist_wheel", "build_ext"} & set(sys.argv) and "editable_wheel" not in sys.argv
    if not asked or os.environ.get("HEDGEROW_COMPILE") == "0":
        return []
    from mypyc.build import mypycify

    files = sorted({file for pattern in HOT for file in glob(pattern)} - NOT_HOT)
    made = mypycify([f for f in files if not f.endswith("__init__.py")], opt_level="2")
    for extension in made:
        extension.extra_compile_args += FLAGS
        extension.optional = True  # no compiler: the sources serve
    return made


setup(ext_modules=extensions())
