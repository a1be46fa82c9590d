"""A real DNS server, NSD, on a port of 127.0.0.1 (Debian package `nsd`).

It serves the zone `test`. Its records can change, it can refuse to answer (SERVFAIL), and it can
stop to answer.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.harness.peer import WAIT_S
from tests.harness.ports import free_port
from tests.harness.virtual_time import at_most

NSD = shutil.which("nsd") or shutil.which("nsd", path="/usr/sbin:/usr/local/sbin")
needs_nsd = pytest.mark.skipif(NSD is None, reason="needs the DNS server nsd (Debian package nsd)")
NEGATIVE_TTL_S = 1
_SERVFAIL = -1

_CONFIGURATION = """\
server:
  ip-address: 127.0.0.1@{port}
  username: ""
  chroot: ""
  zonesdir: "{folder}"
  database: ""
  pidfile: "{folder}/nsd.pid"
  xfrdfile: "{folder}/xfrd.state"
  zonelistfile: "{folder}/zone.list"
  logfile: "{folder}/log"
  server-count: 1
remote-control:
  control-enable: no
zone:
  name: "test"
  zonefile: "test.zone"
"""


class NameServer:
    """One server. The first call of `serve` starts it."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self._serial = 0
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "nsd.conf").write_text(
            _CONFIGURATION.format(port=self.port, folder=folder), encoding="ascii"
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def serve(self, *records: str, ttl_s: int = 1) -> None:
        """Serve these records, such as `vllm A 127.0.0.1`. Returns when they are in force.

        The owner name is relative to the zone `test`.
        """
        self._write(records, ttl_s)
        if self._process is None:
            self._start()
        else:
            os.killpg(self._process.pid, signal.SIGHUP)
        await self._until(self._serial)

    async def fail(self) -> None:
        """Answer SERVFAIL to every query, because the zone cannot be loaded."""
        await self.stop()
        (self._folder / "test.zone").unlink()
        self._start()
        await self._until(_SERVFAIL)

    def freeze(self) -> None:
        """Do not answer any more."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGCONT)

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGCONT)
            os.killpg(process.pid, signal.SIGTERM)
            await asyncio.to_thread(process.wait)

    async def _until(self, serial: int) -> None:
        """Wait until the server answers with this serial number, or with SERVFAIL."""
        async with asyncio.timeout(at_most(WAIT_S)):
            while await asyncio.to_thread(self._served) != serial:
                await asyncio.sleep(0.01)

    def _start(self) -> None:
        assert NSD is not None
        self._process = subprocess.Popen(
            [NSD, "-d", "-c", str(self._folder / "nsd.conf")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _write(self, records: Iterable[str], ttl_s: int) -> None:
        self._serial += 1
        lines = [
            "$ORIGIN test.",
            f"$TTL {ttl_s}",
            f"@ {NEGATIVE_TTL_S} SOA ns admin {self._serial} 60 60 3600 {NEGATIVE_TTL_S}",
            "@ NS ns",
            "ns A 127.0.0.1",
            *records,
        ]
        (self._folder / "test.zone").write_text("\n".join([*lines, ""]))

    def _served(self) -> int | None:
        """The serial number of the zone in force; _SERVFAIL; None: no answer."""
        import dns.exception
        import dns.message
        import dns.query
        import dns.rcode

        query = dns.message.make_query("test.", "SOA")
        try:
            answer = dns.query.udp(query, "127.0.0.1", timeout=0.5, port=self.port)
        except (dns.exception.DNSException, OSError):
            return None
        if answer.rcode() == dns.rcode.SERVFAIL:
            return _SERVFAIL
        return int(answer.answer[0][0].serial) if answer.answer else None


@asynccontextmanager
async def name_server() -> AsyncIterator[NameServer]:
    """A server that is not started yet; `serve` starts it."""
    with tempfile.TemporaryDirectory(prefix="hedgerow-nsd-") as folder:
        server = NameServer(Path(folder))
        try:
            yield server
        finally:
            await server.stop()
