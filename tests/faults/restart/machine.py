"""A running systemd, in namespaces of its own, with the program and the units of `deploy/systemd`.

systemd is process 1 of new namespaces for processes, mounts and control groups, on a copy of this
machine's files in memory (boot.sh). It shares the network with the test. Needs root.

Must never: change a file, a process or a control group that is not its own.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
import sysconfig
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.places import ROOT

BOOT = Path(__file__).with_name("boot.sh")
UNITS = ROOT / "deploy" / "systemd"
PROGRAMS = ("systemd", "systemctl", "unshare", "nsenter")
BOOT_S = 60.0  # time limit of the boot: half a second on an idle machine
MOST_S = 200.0  # time limit of a command
SCRIPT = """#!/opt/machine/python/bin/{python}
import sys
sys.path[:0] = ["/opt/machine/tree", "/opt/machine/packages"]
from router.cli import main
raise SystemExit(main())
"""


def why_not() -> str:
    """Why no systemd can run here; "": it can."""
    if os.geteuid():
        return "needs root"
    for name in PROGRAMS:
        if shutil.which(name) is None:
            return f"needs {name}"
    groups = _groups()
    if groups is None:
        return "needs a mounted cgroup2 file system"
    return "" if os.access(groups, os.W_OK) else f"{groups} is read-only"


def _groups() -> Path | None:
    """The control group in which the test may create others."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        words, _, rest = line.partition(" - ")
        if rest.split()[0] == "cgroup2":
            return Path(words.split()[4])
    return None


class Machine:
    """The machine after its boot. `root`: its root folder, as seen from here."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.root = Path(f"/proc/{pid}/root")
        self.log = self.root / "run" / "hedgerow.log"

    def install(self) -> None:
        """Install the program and the units as the unit's comment describes it."""
        script = self.root / "opt" / "hedgerow" / "bin" / "hedgerow"
        script.parent.mkdir(parents=True)
        script.write_text(SCRIPT.format(python=Path(sys.executable).resolve().name))
        script.chmod(0o755)
        (self.root / "etc" / "hedgerow").mkdir()
        for name in ("hedgerow.service", "hedgerow.socket"):
            self.write_unit(name, (UNITS / name).read_text())
        # Where the copy of Python has its library, and where the test finds the events.
        self.write_unit(
            "hedgerow.service.d/test.conf",
            "[Service]\nEnvironment=LD_LIBRARY_PATH=/opt/machine/python/lib\n"
            "Environment=PYTHONDONTWRITEBYTECODE=1\nStandardError=append:/run/hedgerow.log\n",
        )

    def write_unit(self, name: str, text: str) -> None:
        """Call `systemctl daemon-reload` next."""
        path = self.root / "run" / "units" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    @property
    def config(self) -> Path:
        return self.root / "etc" / "hedgerow" / "hedgerow.yaml"

    async def run(self, *command: str, status: int = 0) -> str:
        """Run a command inside the machine; return its output. `status`: the expected status."""
        child = await asyncio.create_subprocess_exec(
            *("nsenter", "-t", str(self._pid), "-m", "-p", "-C", "-r", "-w", *command),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            stdin=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(MOST_S):
                data, _ = await child.communicate()
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
            child._transport.close()  # type: ignore[attr-defined]
        output = data.decode().strip()
        assert child.returncode == status, (command, child.returncode, output, self.text())
        return output

    async def systemctl(self, *args: str, status: int = 0) -> str:
        return await self.run("systemctl", "--no-pager", *args, status=status)

    async def shows(self, name: str) -> str:
        """A property of hedgerow.service."""
        return await self.systemctl("show", "--value", f"--property={name}", "hedgerow.service")

    async def main_pid(self) -> int:
        """The main process of the service, by its number inside the machine."""
        return int(await self.shows("MainPID"))

    async def processes(self) -> int:
        """The number of processes of the service."""
        path = self.root / "sys/fs/cgroup/system.slice/hedgerow.service/cgroup.procs"
        return len(path.read_text().split()) if path.exists() else 0

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def events(self, message: str) -> list[dict[str, Any]]:
        """The log events with this message, since the boot."""
        lines = [line for line in self.text().splitlines() if line.startswith("{")]
        return [event for event in map(json.loads, lines) if event["message"] == message]


@asynccontextmanager
async def booted(folder: Path) -> AsyncIterator[Machine]:
    """A machine, until the block ends. `folder` becomes a mount point in the machine."""
    groups = _groups()
    assert groups is not None
    group = groups / f"hedgerow-test-{os.getpid()}"
    group.mkdir()
    packages = sysconfig.get_paths()["purelib"]
    script = 'echo $$ >"$0/cgroup.procs" && exec "$@"'
    child = await asyncio.create_subprocess_exec(
        *("sh", "-c", script, str(group), "unshare", "--mount", "--pid", "--fork"),
        *("--kill-child", "--cgroup", "--ipc", "--uts", "sh", str(BOOT), str(folder)),
        *(sys.base_prefix, packages, str(ROOT)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert child.stderr is not None
    said = asyncio.ensure_future(child.stderr.read())
    try:
        machine = Machine(await _first_process(child.pid, said))
        async with asyncio.timeout(BOOT_S):
            while not (machine.root / "run/systemd/private").exists():
                assert not said.done(), said.result().decode()
                await asyncio.sleep(0.05)
            while await machine.run("sh", "-c", "systemctl is-system-running || :") != "running":
                await asyncio.sleep(0.05)
        yield machine
    finally:
        if child.returncode is None:
            child.send_signal(signal.SIGKILL)  # Process 1 and all its children end with it.
        await said
        await child.wait()
        child._transport.close()  # type: ignore[attr-defined]
        await _remove(group)
        await asyncio.sleep(0)


async def _first_process(pid: int, said: asyncio.Future[bytes]) -> int:
    """Process 1 of the machine, by its number here. `pid`: the process that has created it."""
    async with asyncio.timeout(BOOT_S):
        while True:
            found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            if found:
                return int(found[0])
            assert not said.done(), said.result().decode()
            await asyncio.sleep(0.02)


async def _remove(group: Path) -> None:
    """Remove a control group and those in it, when their processes have ended."""
    async with asyncio.timeout(MOST_S):
        while group.exists():
            for path, _, _ in os.walk(group, topdown=False):
                try:
                    os.rmdir(path)
                except OSError:
                    await asyncio.sleep(0.05)
