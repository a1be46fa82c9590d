"""Compiles the hot path to C with mypyc when a wheel is built; all else is in pyproject.toml.

The same sources run uncompiled, with much more CPU per request: in a checkout
(`pip install -e .`), without a working C compiler, or with HEDGEROW_COMPILE=0.
The build must not depend on installed packages: mypyc ignores missing imports, and it reports type
errors only in the modules that it compiles. `make check` type-checks everything, strictly.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext

HOT = (
    "router/core/clock.py",
    "router/core/conformal.py",
    "router/core/estimate_cells.py",
    "router/core/kv_estimate.py",
    "router/core/lease.py",
    "router/core/periods.py",
    "router/core/prediction_error.py",
    "router/core/progress.py",
    "router/core/relative_fit.py",
    "router/core/replica_load.py",
    "router/core/round_trip.py",
    "router/core/scheduling.py",
    "router/core/speed_learner.py",
    "router/core/errors.py",
    "router/core/ranking.py",
    "router/core/tally.py",
    "router/core/time_zone.py",
    "router/core/token_gain.py",
    "router/core/ttft_estimate.py",
    "router/core/urgency.py",
    "router/wire/**/*.py",
    "router/intake/*.py",
    "router/admission/**/*.py",
    "policies/base.py",
    "policies/engine_speed.py",
    "policies/facts.py",
    "policies/allowed.py",
    "policies/hedging/curve.py",
    "policies/hedging/gain.py",
    "policies/routing/costs.py",
    "policies/routing/gain.py",
    "policies/routing/kv_aware.py",
    "policies/routing/prompts.py",
    "policies/routing/replica_plan.py",
    "policies/token_deadlines.py",
    "policies/queueing/accounts.py",
    "policies/queueing/base.py",
    "policies/queueing/deadlines.py",
    "policies/queueing/fair.py",
    "policies/queueing/flow_identity.py",
    "policies/queueing/flows.py",
    "policies/queueing/foreign.py",
    "policies/queueing/keyed.py",
    "policies/queueing/prefix_match.py",
    "policies/queueing/ranked.py",
    "policies/queueing/aging_queue.py",
    "policies/queueing/run.py",
    "policies/queueing/shared.py",
    "policies/queueing/sliding.py",
    "policies/queueing/ticket.py",
    "router/fleet/engines/*.py",
    "router/fleet/engines/common/descriptor.py",
    "router/fleet/engines/common/priority.py",
    "router/fleet/engines/common/registry.py",
    "router/fleet/access.py",
    "router/fleet/cadence.py",
    "router/fleet/adapters.py",
    "router/fleet/aliases.py",
    "router/fleet/defaults.py",
    "router/fleet/dialects.py",
    "router/fleet/monitor/signal_changes.py",
    "router/fleet/context.py",
    "router/fleet/names.py",
    "router/fleet/prefix/index.py",
    "router/fleet/prefix/index_slot.py",
    "router/fleet/prefix/lookup.py",
    "router/fleet/prefix/token_ratio.py",
    "router/fleet/error_answers.py",
    "router/fleet/health.py",
    "router/fleet/learned_capacity.py",
    "router/fleet/model_speeds.py",
    "router/fleet/regions/*.py",
    "router/fleet/data_parallel.py",
    "router/fleet/state/*.py",
    "router/fleet/replica.py",
    "router/fleet/suspects.py",
    "router/fleet/utilisation.py",
    "router/fleet/table/*.py",
    "router/addons/continuation/*.py",
    "router/addons/preemption/*.py",
    "router/addons/reservations/*.py",
    "router/addons/usage/budgets.py",
    "router/addons/usage/pending.py",
    "router/addons/usage/spending.py",
    "router/share/heard.py",
    "router/share/limits_told.py",
    "router/share/own.py",
    "router/share/order.py",
    "router/share/others.py",
    "router/dispatch/**/*.py",
    "router/observe/log/access_log.py",
    "router/observe/metrics.py",
    "router/observe/log/salt.py",
    "router/observe/prices.py",
    "router/observe/tenant_usage.py",
    "router/lab/emulator/core/engine_core.py",
    "router/lab/emulator/core/request.py",
    "router/lab/emulator/core/batch.py",
    "router/lab/emulator/core/scheduler.py",
    "router/lab/emulator/core/leap.py",
    "router/lab/emulator/core/kv.py",
    "router/lab/sketch.py",
    "router/lab/simulator/arrival.py",
    "router/lab/simulator/clock.py",
    "router/lab/simulator/engine.py",
    "router/lab/simulator/exchange.py",
    "router/lab/simulator/messages.py",
    "router/lab/simulator/outcome.py",
    "router/lab/simulator/router.py",
    "router/lab/simulator/signals.py",
    "router/lab/simulator/simulation.py",
    "router/lab/replay/report/group.py",
    "router/lab/replay/report/summary.py",
)
# Interfaces of uncompiled code, and structs of msgspec, which is C already.
NOT_HOT = {
    "router/dispatch/addon.py",
    "router/dispatch/attempts/token_ids.py",
    "router/intake/shapes.py",
    "router/dispatch/usage/usage_shapes.py",
    "router/addons/continuation/shapes.py",
}
# No configuration file: the strict one of this project would let a newer mypy fail the build.
MYPY = ["--config-file=", "--follow-imports=silent", "--ignore-missing-imports"]
FLAGS = [
    # A request runs through more code than the nearest cache holds. Direct calls take less of it.
    *("-fvisibility=hidden", "-fno-semantic-interposition", "-fno-plt"),
    "-Wno-error",  # mypyc asks for -Werror; a newer compiler's warning must not fail the build
]
SHARED_LIBRARY = "hedgerow"  # its module is hedgerow__mypyc
BUILD = Path("build/wheel")  # emptied before each build: a stale file would end up in the wheel


def extensions() -> list[Any]:
    """What mypyc makes of the hot path; empty if it was not asked for or cannot be compiled."""
    if os.environ.get("HEDGEROW_COMPILE") == "0":
        return []
    if not compiler_works():
        print("warning: no working C compiler; the hot path stays pure Python", file=sys.stderr)
        return []
    from mypyc.build import mypycify

    files = sorted({file for pattern in HOT for file in glob(pattern, recursive=True)} - NOT_HOT)
    made = mypycify(
        [*MYPY, *(f for f in files if not f.endswith("__init__.py"))],
        opt_level="2",
        debug_level="0",
        # One C file per module, so that all CPUs can compile. No more instructions per request than
        # one file. Link time optimization saves 1 % of them, and adds a third to the build's CPU.
        multi_file=True,
        group_name=SHARED_LIBRARY,
        target_dir=str(BUILD / "c"),
    )
    for extension in made:
        extension.extra_compile_args = [*extension.extra_compile_args, *FLAGS]
    return made


def compiler_works() -> bool:
    """Whether a file that includes Python.h becomes a shared library."""
    from distutils.ccompiler import new_compiler
    from distutils.sysconfig import customize_compiler

    from setuptools import Distribution
    from setuptools.errors import BaseError, CCompilerError

    command = build_ext(Distribution())
    command.finalize_options()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <Python.h>\nint probe(void) { return PY_VERSION_HEX; }\n")
        try:
            compiler: Any = new_compiler()
            customize_compiler(compiler)
            includes = command.include_dirs
            objects = compiler.compile([str(source)], output_dir="/", include_dirs=includes)
            compiler.link_shared_object(objects, str(Path(folder, "probe.so")))
        except (BaseError, CCompilerError):
            return False
    return True


class ParallelBuild(build_ext):
    """Builds extensions, and the C files of one extension, at the same time on all CPUs."""

    def build_extensions(self) -> None:
        self.parallel = os.cpu_count()
        compile_some: Callable[..., list[str]] = self.compiler.compile

        with ThreadPoolExecutor(os.cpu_count()) as threads:

            def compile_all(sources: list[str], *args: Any, **options: Any) -> list[str]:
                def compile_one(source: str) -> list[str]:
                    return compile_some([source], *args, **options)

                return [made for objects in threads.map(compile_one, sources) for made in objects]

            self.compiler.compile = compile_all
            super().build_extensions()


building = {"bdist_wheel", "build_ext"} & set(sys.argv) and "editable_wheel" not in sys.argv
if building:
    shutil.rmtree(BUILD, ignore_errors=True)
setup(
    ext_modules=extensions() if building else [],
    cmdclass={"build_ext": ParallelBuild},
    options={"build": {"build_base": str(BUILD)}},
)
