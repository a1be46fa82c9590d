"""Upgrades a router to this tree and back, under load, and counts what its clients lose: nothing.

    python -m tests.faults.restart.upgrader [REVISION]

REVISION is the old release; see `releases.old_revision`. Prints one line of JSON, and exits with
status 1 if a connection was refused, a stream was cut, a line of a batch was sent twice or lost, or
a tenant could use more than its budget.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import uvloop
from openai import AsyncOpenAI

from router.config.keys import KeyLine, hash_of, line_of
from router.core.limits import raise_open_files
from tests.faults.restart.load import Load
from tests.faults.restart.releases import Releases, extract, old_revision
from tests.harness import kit
from tests.harness.messages import event
from tests.places import ROOT

USED = 50  # tokens of each answer
ANSWERS = 6  # the answers that the budget of the tenant allows
ACME = "Authorization: Bearer acme-key"
OLD, NEW = "old", "new"


@dataclass
class Trial:
    """How much load. `lines`: of each batch; two of them are in progress at a time."""

    streams: int = 15
    rate: float = 40.0  # new connections per second
    kept: int = 4
    tokens: int = 10  # of each stream
    gap_s: float = 0.1  # between two tokens
    lines: int = 12
    line_s: float = 0.2  # the time of a line
    pause_s: float = 0.5  # before and after a change


@dataclass
class Outcome:
    """The counts of a trial. Empty `failed`: nothing was lost."""

    revision: str
    changes: list[str] = field(default_factory=list)  # what each SIGUSR2 led to
    crossed: int = 0  # streams that were in progress at a change, summed over the changes
    done: dict[str, int] = field(default_factory=dict)  # the requests of the load
    lines: dict[str, int] = field(default_factory=dict)  # how often each line was sent: count
    batches: list[str] = field(default_factory=list)  # the end of each batch, and its results
    answers: int = 0  # of the tenant with a budget
    used: int = 0  # tokens of this tenant, as told at the end
    failed: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


class Engine:
    """Answers with token counts, at a slow pace. `lines` counts how often it gets each line."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self.lines: Counter[str] = Counter()

    async def __call__(self, connection: kit.ReplicaConnection) -> None:
        trial = self._trial
        usage = {"prompt_tokens": 30, "completion_tokens": 20, "total_tokens": USED}
        while asked := await connection.recv_request():
            body = asked.json()
            text = str(body["messages"][-1]["content"])
            if body.get("stream"):
                await connection.send(kit.SSE_HEAD, kit.chunk(kit.token("a")))
                for n in range(trial.tokens):
                    await asyncio.sleep(trial.gap_s)
                    await connection.send(kit.chunk(kit.token(f"t{n}")))
                last = {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": usage}
                await connection.send(kit.chunk(event(last)), kit.chunk(kit.DONE), kit.LAST_CHUNK)
                continue
            if text.startswith("r"):
                self.lines[text] += 1
                await asyncio.sleep(trial.line_s)
            whole = {"id": "c", "object": "chat.completion", "choices": [{"index": 0}]}
            await connection.send(kit.json_response({**whole, "usage": usage}))


class Upgrade:
    """A router of the old release, and its clients."""

    def __init__(self, router: kit.RouterProcess, releases: Releases, outcome: Outcome) -> None:
        self._router = router
        self._releases = releases
        self._outcome = outcome
        self.load = Load(router.port)

    async def change(self, name: str) -> None:
        """Change to another release. The new process may refuse; then the old one goes on."""
        self._releases.use(name)
        self._outcome.crossed += self.load.streaming
        event = await self._router.restart()
        said = event["message"]
        begun = [e["name"] for e in self._router.events if e["message"] == "release"]
        if said == "restarted":
            assert begun[-1] == name, begun
        self._outcome.changes.append(f"{name}: {said} {event.get('why', '')}".strip())

    async def page(self, path: str) -> Any:
        client = await kit.RawClient.connect(self._router.admin_port)
        try:
            await client.send(kit.request(path, "Connection: close"))
            return (await client.recv_response()).json()
        finally:
            client.close()

    async def spends(self, *, stream: bool = False) -> int:
        """Send a request of the tenant with a budget; return the status."""
        client = await self._router.client()
        try:
            await client.send(kit.chat(ACME, "Connection: close", stream=stream))
            return (await client.recv_response("POST")).status
        finally:
            client.close()

    async def used(self) -> int:
        """The tokens that the tenant has used today, also those that are in memory."""
        for each in (await self.page("/usage"))["tenants"]:
            if each["tenant"] == "acme":
                return int(each["budgets"]["tokens_per_day"]["used"])
        return 0


def write(folder: Path, url: str) -> Path:
    """Write the configuration, which both releases must accept."""
    key = KeyLine(name="acme", hash=hash_of(b"acme-key"), tokens_per_day=ANSWERS * USED)
    (folder / "keys.jsonl").write_text(line_of(key) + "\n")
    config = folder / "hedgerow.yaml"
    config.write_text(
        f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nreplicas: ['{url}']\n"
        "timeouts: {keep_alive: 5}\ndrain: {lame_duck: 0, grace: 60}\n"
        f"keys: {{file: {folder / 'keys.jsonl'}}}\n"
        f"usage: {{file: {folder / 'usage.db'}, flush: 0.1}}\n"
        f"batches: {{enabled: true, folder: {folder / 'batches'}, concurrency: 2, disk_free: 0}}\n"
    )
    return config


async def prove(trial: Trial, revision: str, folder: Path) -> Outcome:
    """Upgrade from a revision to this tree, and go back. Raises Unavailable."""
    begun = monotonic()
    outcome = Outcome(revision)
    releases = Releases(folder / "releases")
    releases.add(OLD, extract(revision, folder / "sources"))
    releases.add(NEW, ROOT)
    releases.use(OLD)
    engine = Engine(trial)
    # The addon may have been removed, with its tests.
    from tests.addons.batches.app.helpers import records, submit
    from tests.addons.batches.lines import numbered

    hostile = kit.HostileReplica(engine)
    hostile.start()
    config = write(folder, hostile.url)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(hostile.stop)
        router = await stack.enter_async_context(kit.serving(config, command=releases.command))
        client = await stack.enter_async_context(
            AsyncOpenAI(
                base_url=f"http://127.0.0.1:{router.port}/v1",
                api_key="batch-key",
                max_retries=0,
                timeout=60,
                default_headers={"Connection": "close"},
            )
        )
        upgrade = Upgrade(router, releases, outcome)
        load = upgrade.load
        load.start(trial.streams, trial.rate, trial.kept)
        for name in (NEW, OLD):
            outcome.answers += (await upgrade.spends()) == 200
            crossing = asyncio.ensure_future(upgrade.spends(stream=True))
            batch = await submit(client, numbered(trial.lines))
            await asyncio.sleep(trial.pause_s)
            await upgrade.change(name)
            outcome.answers += (await crossing) == 200
            async with asyncio.timeout(60):
                while (batch := await client.batches.retrieve(batch.id)).completed_at is None:
                    await asyncio.sleep(0.05)
            found = await records(client, batch.output_file_id)
            ids = {record["custom_id"] for record in found}
            outcome.batches.append(f"{batch.status}: {len(found)} results of {len(ids)} lines")
            async with asyncio.timeout(30):
                while await upgrade.used() != outcome.answers * USED:
                    await asyncio.sleep(0.05)
        while (await upgrade.spends()) == 200 and outcome.answers < 2 * ANSWERS:
            outcome.answers += 1
        outcome.used = await upgrade.used()
        await asyncio.sleep(trial.pause_s)
        await load.end()
    outcome.done = dict(load.done)
    outcome.lines = {str(times): n for times, n in Counter(engine.lines.values()).items()}
    outcome.failed = {f"{kind}: {why}": n for (kind, why), n in load.failed.items()}
    outcome.seconds = round(monotonic() - begun, 1)
    return outcome


def problems(outcome: Outcome, trial: Trial) -> list[str]:
    """What an outcome has lost, as text."""
    found = [f"{n} times {what}" for what, n in outcome.failed.items()]
    whole = f"completed: {trial.lines} results of {trial.lines} lines"
    found += [f"batch {text}" for text in outcome.batches if text != whole]
    if outcome.lines != {"2": trial.lines}:  # each line is in both batches
        found.append(f"lines were sent so often: {outcome.lines}")
    if (outcome.answers, outcome.used) != (ANSWERS, ANSWERS * USED):
        found.append(f"{outcome.answers} answers, {outcome.used} tokens within the budget")
    if not outcome.changes[0].endswith("restarted"):
        found.append(outcome.changes[0])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Upgrade a router under load.")
    parser.add_argument("revision", nargs="?", help="default: the newest tag")
    args = parser.parse_args()
    raise_open_files()
    trial = Trial(200, 200.0, 20, tokens=30, gap_s=0.2, lines=100, pause_s=2.0)
    with tempfile.TemporaryDirectory(prefix="hedgerow-upgrade-") as folder:
        outcome = uvloop.run(prove(trial, args.revision or old_revision(), Path(folder)))
    lost = problems(outcome, trial)
    print(json.dumps({**asdict(outcome), "problems": lost}))
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
