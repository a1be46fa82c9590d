"""No process outlives the run, whatever ends it: the guard and `Service`, without an engine."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.engine.machine.processes import (
    Service,
    eventually,
    members_of_group,
)
from tests.places import ROOT

WITHIN_S = 30.0
# A server with a helper process, like an engine with its core.
FAMILY = ["sh", "-c", "sleep 600 & echo started; sleep 600"]


def test_kill_leaves_no_process(tmp_path: Path) -> None:
    service = Service("family", FAMILY, tmp_path / "log")
    service.start()
    service.wait_ready(lambda: "started" in service.tail(), WITHIN_S)
    group = service.group
    assert len(members_of_group(group)) >= 3
    service.kill()
    assert members_of_group(group) == []
    assert not service.is_running()
    service.kill()  # a second time is harmless


def test_child_processes_end_with_a_killed_parent(tmp_path: Path) -> None:
    """A killed test run cannot clean up."""
    program = (
        "import sys; from pathlib import Path; from tests.engine.machine.processes import Service\n"
        "service = Service('family', sys.argv[2:], Path(sys.argv[1])); service.start()\n"
        "service.wait_ready(lambda: 'started' in service.tail(), 30)\n"
        "print(service.group, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "log"), *FAMILY],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        assert parent.stdout is not None
        group = int(parent.stdout.readline())
        assert members_of_group(group)
        parent.send_signal(signal.SIGKILL)
    eventually(lambda: not members_of_group(group), WITHIN_S, "the family gone")
