"""Common setup of all tests: enough open files, and no failure because of wall-clock time.

Tests of whole benches, long simulations and much memory are marked `nightly`; `make test` leaves
them out. Tests of code that is not compiled are marked `cold`; CI leaves them out when it tests the
compiled program.
"""

import resource

import pytest
from hypothesis import settings

import tests.harness.virtual_time  # noqa: F401  (replaces a clock that the router keeps)
from tests.examples import examples

_soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (_hard, _hard))

settings.register_profile("hedgerow", examples(100))
settings.load_profile("hedgerow")

NIGHTLY = (
    "tests/addons/batches/app/test_feeding.py",
    "tests/bench/findings/test_intervals.py",
    "tests/bench/hedging/test_hedging_simulated.py",
    "tests/bench/overhead/test_goals.py",
    "tests/bench/plan/test_plan_found.py",
    "tests/bench/priority/test_priority_goals.py",
    "tests/bench/routing/test_simulated_cli.py",
    "tests/bench/routing/test_simulated_oracle.py",
    "tests/bench/sidecar/test_sidecar.py",
    "tests/bench/test_predictors.py",
    "tests/dispatch/hedging/test_hedger_of_a_thousand.py",
    "tests/dispatch/hedging/test_hedger_quiet.py",
    "tests/fleet/prefix/test_prefix_memory.py",
    "tests/lab/replay/test_trust_in_a_replay.py",
    "tests/lab/simulator/test_same_bytes.py",
)

# Their subject is not compiled. What they need of the compiled program is tested by others. A
# nightly test is never one of them.
COLD = (
    "tests/addons/kubernetes/",
    "tests/addons/share/",
    "tests/addons/spot_notices/",
    "tests/app/deploy/",
    "tests/app/plan/",
    "tests/bench/",
    "tests/clients/",
    "tests/config/",
    "tests/lab/audit/",
    "tests/lab/plan/",
    "tests/lab/replay/",
    "tests/lab/traces/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(NIGHTLY):
            item.add_marker(pytest.mark.nightly)
        elif item.nodeid.startswith(COLD):
            item.add_marker(pytest.mark.cold)
