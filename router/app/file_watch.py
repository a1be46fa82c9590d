"""Reloads the configuration when one of its files has changed (`watch: true`).

A thread looks at the files once a second. It compares their identity, size and times, so it sees
files that are replaced, and symbolic links that get another target (mounted Kubernetes secrets).
A changed file is read only after it has not changed for one interval, so that a file is rarely
read while it is written. If a file is read half-written anyway, the reload is refused and logged,
the previous configuration stays in force, and the next change of the file is tried again.

Must never: block the event loop on a slow file system, or apply a part of a configuration.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from router.config.key_files import DATA
from router.config.model import Config
from router.observe.events import log_event

INTERVAL_S: Final = 1.0
# What `_stamp_of` found for each path.
Stamps = dict[str, object]


def files_of(config: Config) -> list[str]:
    """Return the files and folders, besides the configuration file, that a reload reads again."""
    admin = config.admin
    ports = (config.tls, admin.tls)
    credentials = (
        *(pool.credential for pool in config.pools.values()),
        *(replica.credential for replica in config.replicas),
    )
    found = (
        config.keys.file,
        config.keys.folder,
        config.upstream.token_file,
        admin.token_file,
        *(credential.token_file for credential in credentials if credential is not None),
        *(path for tls in ports if tls is not None for path in (tls.cert, tls.key)),
        None if admin.tls is None else admin.tls.client_ca,
    )
    return [*dict.fromkeys(path for path in found if path is not None)]


def stamps_of(paths: Iterable[str]) -> Stamps:
    """Return a value for each path, which changes when the file or the folder changes."""
    return {path: _stamp_of(path) for path in paths}


def _stamp_of(path: str) -> object:
    try:
        if not os.path.isdir(path):
            return _of_file(path)
        if os.path.lexists(data := os.path.join(path, DATA)):
            return os.path.realpath(data)  # Kubernetes never changes the files of one version.
        return [
            (name, _of_file(os.path.join(path, name)))
            for name in sorted(os.listdir(path))
            if not name.startswith(".")
        ]
    except (OSError, ValueError) as err:
        return type(err).__name__


def _of_file(path: str) -> tuple[int, ...]:
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class FileWatch:
    """Watches the files of one router while it is on."""

    def __init__(
        self,
        paths: Callable[[], list[str]],
        reload: Callable[[], Awaitable[object]],
        is_stale: Callable[[], bool],
    ) -> None:
        """`paths`: the files to watch now. `reload`: logs an error before it raises it.

        `is_stale`: whether the files differ from the configuration in force. It is called once,
        because a file may change between the start of the program and the first look.
        """
        self.interval_s = INTERVAL_S
        self._paths = paths
        self._reload = reload
        self._is_stale = is_stale
        self._is_on = False
        self._seen: Stamps = {}
        self._task: asyncio.Task[None] | None = None

    def mark(self) -> None:
        """Notes the present state of the files. Later changes are applied once the watch begins."""
        self._seen = stamps_of(self._paths())

    def switch(self, is_on: bool) -> None:
        """Begins or ends to watch. May be called by the reload that this object started.

        If `mark` was not called before the files were read, they are read once more.
        """
        self._is_on = is_on
        if is_on and self._task is None:
            self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        self._is_on = False
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        if await asyncio.to_thread(self._is_stale):
            await self._apply()
        changing: Stamps | None = None
        while self._is_on:
            await asyncio.sleep(self.interval_s)
            now = await self._look()
            if now == self._seen:
                changing = None
            elif now != changing:
                changing = now
            elif self._is_on:
                changed = [path for path in now if now[path] != self._seen.get(path)]
                log_event(logging.INFO, "files changed", key=None, files=changed)
                await self._apply()
                # If the new configuration names other files, they are new here, and are read once
                # more: they may have changed since the reload has read them.
                self._seen = now
                changing = None
        self._task = None

    async def _look(self) -> Stamps:
        return await asyncio.to_thread(stamps_of, self._paths())

    async def _apply(self) -> None:
        try:
            await self._reload()
        except Exception:  # Whatever goes wrong, later changes must still be applied.
            pass  # The reload has logged the error.
