"""Probes the health and the models of replicas: one task per replica, over its own connections.

Probes never share the data plane's connections, so a replica that hangs on /health delays no
request. The first round of probes runs before the router listens, so the router starts with known
states. A replica that is not up, because it is new or was down, is reported as good only after its
model list was read. A good health probe alone is enough if the replica's models are configured, or
if the fleet has one replica. The engine's descriptor sets the health path and its timeout (SGLang's
/health generates a token). The duration of a probe is a measurement of the round-trip time to the
replica. The model list shows in most cases which engine the replica runs.

A probe that fails because this host has no free file descriptor or port is not counted. A probe
that times out is not counted while the replica shows work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from time import monotonic
from typing import Final

from router.config.model import Config
from router.core.errors import STATUS, Reason
from router.fleet.engines.common.base import Check
from router.fleet.engines.common.descriptor import Engine
from router.fleet.engines.common.detect import detect
from router.fleet.engines.common.models import CONTEXT, Entries, context_tokens, owners, read_models
from router.fleet.engines.common.registry import engine_of
from router.fleet.monitor.ask import Asker, NoAnswer, Sink, keep
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet

_MODELS_BYTES: Final = 4 * 1024 * 1024
_FACTS_BYTES: Final = 1024 * 1024
# A replica without a health path is healthy if it lists its models.
_MODELS_CHECK: Final = Check("/v1/models")
# Statuses of a server that may list its models later: the server is loading its models, or is
# overloaded.
_LATER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_LATE: Final = -1
FIRST_ROUND_S: Final = 2.0
_LOOP_HINT: Final = ": the address leads back to this router, or both have the same name (`via`)"


class Prober:
    """The probes of a whole fleet."""

    def __init__(
        self,
        fleet: Fleet,
        config: Config,
        token: str | None,
        rng: Random,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._fleet = fleet
        self._asker = Asker(token, config.via)
        self._rules = config.health
        self._rng = rng
        self._on_error = on_error
        self._tasks: dict[Replica, asyncio.Task[None]] = {}
        self._at_start = False  # Whether the first round of probes is in progress.

    def adopt(self, config: Config, token: str | None) -> None:
        """Use new settings from a reload for later probes."""
        self._rules = config.health
        self._asker.adopt(token, config.via)

    async def start(self) -> None:
        """Start to probe every replica. Returns after the first round of probes.

        A replica that does not answer quickly does not delay the start; its probe continues.
        """
        self._at_start = True
        self._asker.prepare()
        try:
            first = [self._begin(replica) for replica in self._fleet.members]
            if first:
                await asyncio.wait(first, timeout=min(FIRST_ROUND_S, self._rules.timeout_s))
        finally:
            self._at_start = False

    def watch(self, replica: Replica) -> None:
        """Probe a replica now and periodically."""
        self._begin(replica)

    def _begin(self, replica: Replica) -> asyncio.Future[None]:
        """Start to probe a replica. Returns a future that is done after its first probe."""
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(self._watch(replica, first))
        self._tasks[replica] = task
        task.add_done_callback(lambda _: self._tasks.pop(replica, None))
        return first

    def unwatch(self, replica: Replica) -> None:
        task = self._tasks.get(replica)
        if task is not None:
            task.cancel()

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._asker.close()

    @property
    def running(self) -> int:
        return len(self._tasks)

    async def _watch(self, replica: Replica, first: asyncio.Future[None]) -> None:
        models_at = 0.0  # The time at which the replica's model list must be read next.
        while True:
            try:
                if await self._probe(replica, is_due=monotonic() >= models_at):
                    models_at = monotonic() + self._rules.models_interval_s
            except NoAnswer as none:
                replica.health.why_down = none.detail
            except Exception as err:
                self._on_error(err)
            if not first.done():
                first.set_result(None)
            await asyncio.sleep(self._pause(replica))

    async def _probe(self, replica: Replica, *, is_due: bool) -> bool:
        """Probe once and report to the fleet. Returns False if the model list must still be read.

        Raises NoAnswer, and reports nothing, if this host could not send the probe.
        """
        why, is_late = await self._unwell(replica)
        good = not why
        entries: Entries | None = None
        if good and not replica.health.up and replica.config.models is None:
            # The replica may serve another model than before, so its model list is read first.
            entries = await self._read_models(replica)
            good = entries is not None or len(self._fleet.members) == 1
            why = "it does not list its models"
            is_due = False
        replica.health.why_down = "" if good else why
        probes = self._fleet.probes
        if is_late and probes.is_excused(replica):
            replica.health.why_down = f"{why}, but it works for requests"
        else:
            probes.probed(replica, good, at_start=self._at_start)
        if good and is_due:
            entries = await self._read_models(replica)
        await self._learn_context(replica, entries or {})
        return entries is not None or (is_due and replica.models is not None)

    def _pause(self, replica: Replica) -> float:
        pause = self._rules.interval_s * self._rng.uniform(0.8, 1.2)
        # A replica that has just begun to fail is probed sooner.
        return pause if replica.health.probe_streak >= 0 else min(pause, 1.0)

    async def _unwell(self, replica: Replica) -> tuple[str, bool]:
        """Return what is wrong with the replica, as text for people; "" if it is healthy.

        The second value is True if there was no answer in time. Raises NoAnswer as `_probe`.
        """
        rules = self._rules
        if rules.path is not None:
            status, problem = await self._status(replica, rules.path, rules.timeout_s)
            return "" if 200 <= status < 400 else problem, status == _LATE
        status, problem = 0, ""
        for check in (*_engine(replica).health, _MODELS_CHECK):
            timeout_s = max(rules.timeout_s, check.timeout_s)
            status, problem = await self._status(replica, check.path, timeout_s)
            if check.decides(max(status, 0)):
                break
        return "" if 0 < status < 500 else problem, status == _LATE

    async def _status(self, replica: Replica, path: str, timeout_s: float) -> tuple[int, str]:
        """Return the status of a GET (0: no answer; _LATE: none in time), and the problem as text;
        "" if there is none.

        Raises NoAnswer as `_probe`.
        """
        try:
            status = await self._get(replica, path, timeout_s)
        except NoAnswer as none:
            if none.problem == "local":
                raise
            return _LATE if none.problem == "timeout" else 0, f"{path}: {none.detail}"
        hint = _LOOP_HINT if status == STATUS[Reason.LOOP] else ""
        return status, f"{path} answered {status}{hint}"

    async def _get(
        self,
        replica: Replica,
        path: str,
        timeout_s: float,
        sink: Sink | None = None,
        size: int = 0,
    ) -> int:
        """Send a GET over a new connection, and measure the round trip to the replica.

        An answer 5xx is not measured, because a proxy near the router may have sent it. The
        arguments are those of `Asker.get`. Raises NoAnswer.
        """
        began = monotonic()
        status = await self._asker.get(replica, path, timeout_s, sink, size)
        # TCP and TLS 1.3 need one round trip each before the request.
        trips = 3.0 if replica.address.is_tls else 2.0
        if status < 500:
            ended = monotonic()
            replica.timed((ended - began) / trips, ended)
        return status

    async def _read_models(self, replica: Replica) -> Entries | None:
        """Read /v1/models, and return the entries; the result is empty for an engine without a
        model list.

        The result is `None` if there was no usable answer, so that the replica's models are now
        unknown. Raises NoAnswer as `_probe`.
        """
        pieces: list[bytes] = []
        path, timeout_s = _MODELS_CHECK.path, self._rules.timeout_s
        try:
            status = await self._get(replica, path, timeout_s, keep(pieces), _MODELS_BYTES)
        except NoAnswer as none:
            if none.problem == "local":
                raise
            return {} if none.problem in ("garbage", "too_large") else None
        for rank in replica.ranks:
            rank.list_status = status
        if status != 200:
            return None if status in _LATER else {}
        entries = read_models(b"".join(pieces))
        if entries and not replica.removed:
            found = detect(owned_by=owners(entries))
            if found is not None and replica.config.engine is None:
                for rank in replica.ranks:
                    rank.engine = found  # Another engine may now run at the address.
            self._fleet.probes.learned(replica, entries)
        return entries

    async def _learn_context(self, replica: Replica, entries: Entries) -> None:
        """Read the context length from engines that report it elsewhere than in their model
        list."""
        facts = _engine(replica).facts
        without_length = [name for name, entry in entries.items() if context_tokens(entry) is None]
        if facts is None or not without_length:
            return
        body = await self._body(replica, facts.path, _FACTS_BYTES)
        tokens = None if body is None else facts.parse(body).context_tokens
        if tokens is not None and not replica.removed:
            completed = {name: {**entries[name], CONTEXT: tokens} for name in without_length}
            self._fleet.probes.learned(replica, {**entries, **completed})

    async def _body(self, replica: Replica, path: str, size: int) -> bytes | None:
        try:
            return await self._asker.body(replica, path, self._rules.timeout_s, size)
        except NoAnswer:
            return None


def _engine(replica: Replica) -> Engine:
    configured = replica.config.engine
    return replica.descriptor if configured is None else engine_of(configured)
