"""Writes the counted usage to the usage file every few seconds, and reads it back for budgets.

The event loop only collects amounts (`Pending.take`); a thread writes them. If the
process is killed, at most the amounts since the last write are lost. If the file cannot be written
(a full disk, a locked or a corrupt file), requests are served as before, the amounts stay in
memory, and the write is repeated. This is logged and counted.

If another router has written to the file since the last write, the amounts of all budgets are read
from it. So routers with the same file share their budgets (`spending.py`). A request that
another router counts is known here after at most two intervals.

Must never: block the event loop, or change a file that is not a usage file.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from router.addons.usage.budgets import Budgets
from router.addons.usage.database import Amount, UsageDatabase, WrongVersion
from router.addons.usage.pending import Pending, Rows
from router.config.model import Usage
from router.core.clock import time
from router.core.disk.worker import Worker
from router.core.errors import ConfigError
from router.observe.events import log_event

T = TypeVar("T")

STOP_S: Final = 5.0  # The longest time that the last write and the closing of the file may take.


class UsageWriter:
    """The usage file of one router. Call `start` first, and `stop` once at the end."""

    def __init__(self, rules: Usage, pending: Pending, budgets: Budgets) -> None:
        assert rules.file is not None
        self.rules = rules
        self.errors = 0  # Number of writes that failed.
        self.problem = ""  # Why the last write failed; "": it succeeded.
        self._is_wrong_version = False  # The last write failed because of the file's version.
        self._path = rules.file
        self._pending = pending
        self._budgets = budgets
        self._worker = Worker("usage")
        self._database: UsageDatabase | None = None
        self._lock = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._flushes: set[asyncio.Task[bool]] = set()  # Writes in progress.
        # The tenants with budgets whose amounts in the file are known.
        self._read: set[str] = set()
        self._read_on = -1  # The day of these amounts.
        self._pruned_on = -1

    async def start(self) -> None:
        """Opens the file and reads the used amounts of budgets.

        Raises ConfigError if the file is of another version of the program. Budgets would begin
        anew. Any other error is logged, and the file is opened again later.
        """
        self._budgets.read_file = self._read_budgets
        await self.flush()
        if self._is_wrong_version:
            raise ConfigError([f"usage.file: {self._path}: {self.problem}"])
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Writes the last amounts and closes the file, in at most STOP_S seconds.

        If the disk does not answer in this time, the thread is left alone with its last write.
        """
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._budgets.read_file = None
        self._budgets.awaits_file = False
        try:
            async with asyncio.timeout(STOP_S):
                if self._task is not None:
                    if not await self.flush():
                        log_event(logging.ERROR, "usage was lost at the end", key=None)
                    await self._end_tasks(self._task)
                await self._worker(self._close)
        except TimeoutError:
            log_event(logging.ERROR, "usage was not written in time at the end", key=None)
            for flush in self._flushes:
                flush.cancel()
            if self._task is not None:
                await self._end_tasks(self._task)
            self._worker.abandon(self._close)
        else:
            self._worker.close()

    async def _end_tasks(self, task: asyncio.Task[None]) -> None:
        await asyncio.gather(task, *self._flushes, return_exceptions=True)

    async def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                async with asyncio.timeout(self.rules.flush_s):
                    await self._stopping.wait()
            except TimeoutError:
                await self.flush()

    def _read_budgets(self) -> None:
        """Reads the used amounts of budgets now. Requests with a budget wait for this."""
        task = asyncio.ensure_future(self._flush())
        self._flushes.add(task)
        task.add_done_callback(self._has_read)

    def _has_read(self, task: asyncio.Task[bool]) -> None:
        self._flushes.discard(task)
        self._budgets.awaits_file = False

    # -- writing --------------------------------------------------------------------------------

    async def flush(self) -> bool:
        """Writes the pending amounts, and reads the used amounts of budgets. False: it failed.

        If the caller is cancelled, the write goes on: amounts whose write was given up could be
        written twice.
        """
        task = asyncio.ensure_future(self._flush())
        self._flushes.add(task)
        task.add_done_callback(self._flushes.discard)
        return await asyncio.shield(task)

    async def _flush(self) -> bool:
        async with self._lock:
            today = self._budgets.day(time())
            pending = self._pending.take()
            is_written = False
            try:
                await self._worker(self._write, pending, today)
                is_written = True
                self._settle(pending)
                is_changed = await self._worker(self._with_database, UsageDatabase.is_changed)
                wanted = self._wanted(is_changed, today)
                if wanted:
                    self._store(today, await self._worker(self._amounts, wanted, today))
                    self._read.update(wanted)
            except (sqlite3.Error, OSError) as err:
                self._failed(err)
                return False
            finally:
                if not is_written:
                    self._pending.give_back(pending)
            if self.problem:
                log_event(logging.INFO, "usage is written again", key=None, file=self._path)
                self.problem = ""
            return True

    def _settle(self, pending: Rows) -> None:
        """Counts the written amounts as amounts of the file."""
        for (day, tenant, _), used in pending.items():
            spending = self._budgets.by_tenant.get(tenant)
            if spending is not None:
                for window in spending.windows:
                    window.period(day).settle(float(used.prompt + used.output), used.cost)

    def _wanted(self, is_changed: bool, today: int) -> list[str]:
        """Return the tenants with budgets whose amounts in the file are not known."""
        limited = self._budgets.keys.budgets
        if is_changed or today != self._read_on:
            # The clock may have jumped to another day, of which the file has amounts.
            self._read_on = today
            self._read.clear()
        self._read.intersection_update(limited.keys())
        return [tenant for tenant in limited if tenant not in self._read]

    def _store(self, today: int, found: Mapping[str, list[Amount]]) -> None:
        for tenant, amounts in found.items():
            for window, amount in zip(self._budgets.of(tenant).windows, amounts, strict=True):
                window.period(today).store(*amount)

    def _failed(self, err: Exception) -> None:
        self.errors += 1
        self.problem = str(err)
        self._is_wrong_version = isinstance(err, WrongVersion)
        log_event(
            logging.ERROR,
            "usage cannot be written",
            key=self._path,
            file=self._path,
            error=str(err),
            effect="requests are served; amounts stay in memory until they can be written",
        )

    # -- reading --------------------------------------------------------------------------------

    async def read(self, function: Callable[[UsageDatabase], T]) -> T:
        """Calls a function that reads the file, in the thread, after a write.

        Raises OSError if the file cannot be used.
        """
        if not await self.flush():
            raise OSError(self.problem)
        async with self._lock:
            try:
                return await self._worker(self._with_database, function)
            except sqlite3.Error as err:
                raise OSError(str(err)) from err

    # -- in the thread --------------------------------------------------------------------------

    def _write(self, pending: Rows, today: int) -> None:
        self._with_database(lambda file: file.add(pending))
        if today != self._pruned_on:
            self._pruned_on = today
            self._prune()

    def _prune(self) -> None:
        # The amounts are written, so an error here must not have them written again.
        try:
            self._with_database(lambda database: database.prune(self.rules.retention_days))
        except (sqlite3.Error, OSError) as err:
            log_event(logging.WARNING, "old usage cannot be deleted", error=str(err))

    def _amounts(self, tenants: list[str], today: int) -> dict[str, list[Amount]]:
        """Return the amounts of these tenants, except those that have not used anything."""

        def read(file: UsageDatabase) -> dict[str, list[Amount]]:
            each = ((tenant, file.amounts(tenant, today)) for tenant in tenants)
            known = self._budgets.by_tenant
            return {name: found for name, found in each if name in known or any(map(any, found))}

        return self._with_database(read)

    def _with_database(self, function: Callable[[UsageDatabase], T]) -> T:
        """Opens the file if necessary. After an error the file is closed, and is opened again."""
        database = self._database
        if database is not None and database.is_moved():
            self._close()
            database = None
        if database is None:
            database = self._database = UsageDatabase(self._path)
        try:
            return function(database)
        except (sqlite3.Error, OSError):
            self._close()
            raise

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()
