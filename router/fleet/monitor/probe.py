"""Probes the health and the models of replicas: one task per replica, over its own connections.

Probes never share the data plane's connections, so a replica that hangs on /health delays no
request. The first round of probes runs before the router listens, so the router starts with known
states. A replica that is not up, because it is new or was down, is reported as good only after its
model list was read. A good health probe alone is enough if the replica's models are configured, or
if the fleet has one replica. The engine's descriptor sets the health path and its timeout (SGLang's
/health generates a token). The duration of a probe is a measurement of the round-trip time to the
replica. The model list shows in most cases which engine the replica runs.

A model list is read periodically, and ahead of time if it may be out of date (`read_list`,
`read_lists`). Clients can cause such reads, so their rate is limited: per replica, and for the
whole fleet.

A probe that fails because this host has no free file descriptor or port is not counted. A probe
that times out is not counted while the replica shows work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from random import Random
from typing import Final

from router.config.in_force import InForce
from router.config.model import Health
from router.core.clock import monotonic
from router.core.errors import Reason
from router.fleet.engines.common.base import Check
from router.fleet.engines.common.descriptor import Engine
from router.fleet.engines.common.detect import detect
from router.fleet.engines.common.models import CONTEXT, Entries, context_tokens, owners, read_models
from router.fleet.engines.common.registry import engine_of
from router.fleet.error_answers import KEY_STATUS
from router.fleet.monitor.ask import Asker, NoAnswer, Sink, keep
from router.fleet.monitor.nap import Nap
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet
from router.fleet.table.hooks import ignore

_MODELS_BYTES: Final = 4 * 1024 * 1024
_FACTS_BYTES: Final = 1024 * 1024
# A replica without a health path is healthy if it lists its models.
_MODELS_CHECK: Final = Check("/v1/models")
# Statuses of a server that may list its models later: the server is loading its models, or is
# overloaded.
_LATER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_KEY_HINT: Final = (
    ": the engine does not accept the router's key; set `upstream.token_file`, or the `credential` "
    "of the replica"
)
_LATE: Final = -1
FIRST_ROUND_S: Final = 2.0
# Minimum time between two reads of one list because it is doubted, and between two reads of all
# lists because a model is unknown: shares of the regular time (`models_interval`).
_DOUBTED_SHARE: Final = 1 / 30
_UNKNOWN_SHARE: Final = 1 / 6
# Pauses before the looks whether a process has died. A process that dies may take some seconds to
# close its port (vLLM answers 503 meanwhile).
_LOOKS_S: Final = (0.0, 0.25, 0.5, 1.0, 2.0)
_LOOP_HINT: Final = ": the address leads back to this router, or both have the same name (`via`)"


class Prober:
    """The probes of a whole fleet."""

    def __init__(
        self,
        fleet: Fleet,
        in_force: InForce,
        rng: Random,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._fleet = fleet
        self._in_force = in_force
        self._asker = Asker(in_force)
        self._rng = rng
        self._on_error = on_error
        self._turns: dict[Replica, _Turn] = {}
        # The replicas whose lists are still to be read because a model is unknown, and when the
        # last such reads began.
        self._unread: set[Replica] = set()
        self._unread_at = -inf
        # The replicas that have lost a request and whose process may have died.
        self._looks: dict[Replica, asyncio.Task[None]] = {}
        self._at_start = False  # Whether the first round of probes is in progress.

    @property
    def _rules(self) -> Health:
        return self._in_force.config.health

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
        turn = self._turns[replica] = _Turn()
        turn.task = asyncio.ensure_future(self._watch(replica, turn, first))
        turn.task.add_done_callback(lambda _: self._ended(replica))
        return first

    def _ended(self, replica: Replica) -> None:
        self._turns.pop(replica, None)
        self._settle(replica)

    def look_for_death(self, replica: Replica) -> None:
        """Find out soon whether the process of a replica that has lost a request has died.

        A look does not count as a probe: it changes only what is known about the lost requests.
        """
        if replica not in self._looks and not replica.is_external:
            task = self._looks[replica] = asyncio.ensure_future(self._look_for_death(replica))
            task.add_done_callback(lambda _: self._looks.pop(replica, None))

    async def _look_for_death(self, replica: Replica) -> None:
        for pause_s in _LOOKS_S:
            await asyncio.sleep(pause_s)
            try:
                if await self._is_dead(replica):
                    self._fleet.died(replica)
                    return
            except Exception as err:
                self._on_error(err)

    async def _is_dead(self, replica: Replica) -> bool:
        status = 0
        for check in self._checks(replica):
            try:
                status = await self._asker.get(replica, check.path, self._rules.timeout_s)
            except NoAnswer as none:
                return none.problem in ("refused", "garbage")
            if check.decides(status):
                break
        return status >= 500

    def _checks(self, replica: Replica) -> Sequence[Check]:
        """Return the paths that show the health of a replica, in the order of the questions."""
        if self._rules.path is not None:
            return (Check(self._rules.path),)
        return (*_engine(replica).health, _MODELS_CHECK)

    def unwatch(self, replica: Replica) -> None:
        turn = self._turns.get(replica)
        for task in (None if turn is None else turn.task, self._looks.get(replica)):
            if task is not None:
                task.cancel()

    async def stop(self) -> None:
        self._fleet.hooks.lost = ignore
        tasks = [turn.task for turn in self._turns.values() if turn.task is not None]
        tasks += self._looks.values()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._asker.close()

    @property
    def running(self) -> int:
        return len(self._turns)

    # -- reading model lists ahead of time ----------------------------------------------------

    def read_list(self, replica: Replica) -> None:
        """Read the model list of a replica soon, because it may be out of date."""
        turn = self._turns.get(replica)
        if turn is not None and replica.health.up:
            turn.is_doubted = True
            turn.nap.wake()

    def read_lists(self) -> bool:
        """Read the model lists of all replicas, because a model is unknown.

        Returns whether such reads are in progress; False if the last ones were a short time ago.
        """
        if self._unread:
            return True
        now = monotonic()
        if now - self._unread_at < self._rules.models_interval_s * _UNKNOWN_SHARE:
            return False
        self._unread_at = now
        for replica, turn in self._turns.items():
            if replica.health.up and replica.config.models is None:
                self._unread.add(replica)
                self.read_list(replica)
                turn.read_at = -inf  # The time since the last reads of all lists is long enough.
        return bool(self._unread)

    def _settle(self, replica: Replica) -> None:
        """Note that the list of a replica was read, or that it cannot be read now."""
        if replica in self._unread:
            self._unread.discard(replica)
            if not self._unread:
                self._fleet.hooks.first_probe()

    async def _read_early(self, replica: Replica) -> None:
        try:
            entries = await self._read_models(replica)
            await self._learn_context(replica, entries or {})
        except NoAnswer:
            pass  # This host could not send the question.
        except Exception as err:
            self._on_error(err)

    # -- probing ------------------------------------------------------------------------------

    async def _watch(self, replica: Replica, turn: _Turn, first: asyncio.Future[None]) -> None:
        models_at = 0.0  # The time at which the replica's model list must be read next.
        while True:
            try:
                if await self._probe(replica, is_due=monotonic() >= models_at):
                    models_at = monotonic() + self._rules.models_interval_s
            except NoAnswer as none:
                self._fleet.probes.explained(replica, none.detail)
            except Exception as err:
                self._on_error(err)
            if not first.done():
                first.set_result(None)
            await self._rest(replica, turn)

    async def _rest(self, replica: Replica, turn: _Turn) -> None:
        """Wait until the next probe is due. Meanwhile read the model list, if it is doubted."""
        now = monotonic()
        until = now + self._pause(replica)
        while now < until:
            due = until
            if turn.is_doubted:
                gap_s = self._rules.models_interval_s * _DOUBTED_SHARE
                due = min(until, turn.read_at + gap_s)
            if due > now:
                await turn.nap.sleep(due - now)
            else:
                turn.is_doubted = False
                turn.read_at = now
                if replica.health.up:
                    await self._read_early(replica)
                self._settle(replica)
            now = monotonic()

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
            why = replica.listed.problem
            is_due = False
        is_excused = is_late and self._fleet.probes.is_excused(replica)
        if is_excused:
            why = f"{why}, but it works for requests"
        self._fleet.probes.explained(replica, "" if good else why)
        if not is_excused:
            self._fleet.probes.probed(replica, good, at_start=self._at_start)
        if good and is_due:
            entries = await self._read_models(replica)
        await self._learn_context(replica, entries or {})
        return entries is not None or (is_due and replica.models is not None)

    def _pause(self, replica: Replica) -> float:
        return replica.health.pause_s(self._rules.interval_s) * self._rng.uniform(0.8, 1.2)

    async def _unwell(self, replica: Replica) -> tuple[str, bool]:
        """Return what is wrong with the replica, as text for people; "" if it is healthy.

        The second value is True if there was no answer in time. Raises NoAnswer as `_probe`.
        """
        rules = self._rules
        status, problem = 0, ""
        for check in self._checks(replica):
            timeout_s = max(rules.timeout_s, check.timeout_s)
            status, problem = await self._status(replica, check.path, timeout_s)
            if check.decides(max(status, 0)):
                break
        # A configured path states the health; of other paths any answer without an error counts.
        good = range(1, 500) if rules.path is None else range(200, 400)
        return "" if status in good else problem, status == _LATE

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
        hint = _LOOP_HINT if status == Reason.LOOP.status else ""
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
        trips = 3.0 if replica.endpoint.address.is_tls else 2.0
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
        probes = self._fleet.probes
        try:
            status = await self._get(replica, path, timeout_s, keep(pieces), _MODELS_BYTES)
        except NoAnswer as none:
            if none.problem == "local":
                raise
            is_final = none.problem in ("garbage", "too_large")
            probes.unlisted(replica, f"{path}: {none.detail}", is_final=is_final)
            return {} if is_final else None
        replica.endpoint.list_status = status
        if status != 200:
            hint = _KEY_HINT if status in KEY_STATUS else ""
            is_final = status not in _LATER
            probes.unlisted(replica, f"{path} answered {status}{hint}", is_final=is_final)
            return {} if is_final else None
        entries = read_models(b"".join(pieces))
        await asyncio.sleep(0)  # A long list takes milliseconds to read, and others to compare.
        if not entries:
            probes.unlisted(replica, f"{path} lists no models", is_final=True)
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
        try:
            body = await self._asker.body(replica, facts.path, self._rules.timeout_s, _FACTS_BYTES)
        except NoAnswer:
            return
        tokens = None if body is None else facts.parse(body).context_tokens
        if tokens is not None and not replica.removed:
            completed = {name: {**entries[name], CONTEXT: tokens} for name in without_length}
            self._fleet.probes.learned(replica, {**entries, **completed})


class _Turn:
    """The probes of one replica. Times are monotonic seconds."""

    __slots__ = ("is_doubted", "nap", "read_at", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.nap = Nap()
        self.is_doubted = False  # Whether the model list must be read before its regular time.
        self.read_at = -inf  # When the list was last read for this reason.


def _engine(replica: Replica) -> Engine:
    configured = replica.config.engine
    return replica.descriptor if configured is None else engine_of(configured)
