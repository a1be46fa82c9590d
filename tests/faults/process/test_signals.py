"""Signals: those that order nothing cut no stream, and an early one does not end the start."""

import asyncio
import signal
import sys
from pathlib import Path

from tests.faults.process.test_log_of_states import ask, configured
from tests.faults.restart.helpers import held
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.process import serving
from tests.harness.replica import HostileReplica, eventually
from tests.harness.running import scenario

NOISE = (
    signal.SIGQUIT,
    signal.SIGALRM,
    signal.SIGIO,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGPWR,
    signal.SIGRTMIN,
    signal.SIGRTMAX,
)

# Sends signals to itself when it reads its configuration for the first time.
EARLY = """
import os, signal
from router.config import load as module
real = module.load
def load(*args, **kwargs):
    module.load = real
    for name in ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGALRM"):
        os.kill(os.getpid(), getattr(signal, name))
    return real(*args, **kwargs)
module.load = load
from router.cli import main
raise SystemExit(main())
"""


@scenario
async def test_signals_that_order_nothing_cut_no_stream(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with (
        HostileReplica(held(go)) as replica,
        serving(configured(tmp_path, replica.url)) as process,
    ):
        client = await process.send(chat(stream=True))
        await client.recv_until(b'"a"')
        for number in NOISE:
            process.signal(number)
            event = await process.next_event("signal ignored")
            assert event["signal"] == number.name
        process.signal(signal.SIGUSR1)
        await process.next_event("access log opened again")
        go.set()
        assert (await client.recv_response()).complete
        client.close()
        assert await ask(process) == 200


@scenario
async def test_sigusr1_opens_a_renamed_access_log_again_and_reads_no_configuration(
    tmp_path: Path,
) -> None:
    async with HostileReplica(json_ok) as replica:
        log, old = tmp_path / "access.log", tmp_path / "access.log.1"
        config = configured(
            tmp_path, replica.url, more=f"access_log: {{path: {log}, flush: 10ms}}\n"
        )
        async with serving(config) as process:
            config.write_text("nonsense: 1\n")
            assert await ask(process) == 200
            await eventually(lambda: log.read_text().count("\n") == 1, "a line")
            log.rename(old)
            process.signal(signal.SIGUSR1)
            await process.next_event("access log opened again")
            await eventually(log.exists, "the new file")
            assert await ask(process) == 200
            await eventually(lambda: log.read_text().count("\n") == 1, "a line in the new file")
            assert old.read_text().count("\n") == 1
            rest = [*process.events, *await process.rest()]
            assert not [event for event in rest if "reload" in event["message"]]


@scenario
async def test_signals_before_the_configuration_is_read_are_obeyed_later(tmp_path: Path) -> None:
    async with HostileReplica(json_ok) as replica:
        command = (sys.executable, "-c", EARLY)
        async with serving(configured(tmp_path, replica.url), command=command) as process:
            assert await ask(process) == 200
            known = [event["message"] for event in process.events]
            for message in ("access log opened again", "reloaded"):
                if message not in known:
                    await process.next_event(message)
