"""A file that lists replicas, as a source. The file is read in a thread.

Must never: use a part of a file, or start a second read while the first one hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from router.config.document import MAX_BYTES
from router.config.model import Discovery, Replica
from router.core.errors import ConfigError
from router.fleet.discovery.roster import Found
from router.fleet.discovery.source import Look, Source
from router.fleet.discovery.stable import Stable
from router.fleet.monitor.small_file import TooLarge, read_small

_NAMED_MAX = 3  # Maximum number of problems in one text.

Read = Callable[[bytes], Sequence[Replica]]


class FileSource(Source):
    """One watched file."""

    def __init__(self, path: str, rules: Discovery, read: Read) -> None:
        """`read`: decodes and checks the content of the file; raises ConfigError."""
        super().__init__(file_name(path))
        self._path = path
        self._rules = rules
        self._decode = read
        self._stable = Stable()
        self._problem = ""  # The problem of the content that was used last.
        # The read that is in progress. A file system that hangs must not take all threads.
        self._reading: asyncio.Future[bytes | None] | None = None

    async def look(self) -> Look:
        wait_s = self._rules.interval_s
        try:
            raw = await self._content()
        except TimeoutError:
            self._stable.lost()
            return Look(wait_s, problem=f"is not read within {self._rules.timeout_s:g} s")
        except (OSError, ValueError, TooLarge) as err:  # ValueError: the path has a NUL byte
            self._stable.lost()
            why = err.strerror if isinstance(err, OSError) and err.strerror else str(err)
            return Look(wait_s, problem=f"cannot be read: {why}")
        if raw is None:
            self._stable.lost()
            return Look(wait_s, problem="does not exist")
        if not self._stable.is_new(raw):
            return Look(wait_s, problem=self._problem)
        try:
            replicas = await asyncio.to_thread(self._decode, raw)
        except ConfigError as err:
            self._problem = _said(err.problems)
            return Look(wait_s, problem=self._problem)
        self._problem = "" if replicas else "lists no replica"
        return Look(wait_s, [Found(replica) for replica in replicas], problem=self._problem)

    async def _content(self) -> bytes | None:
        """Return the content of the file; `None`: no file. Raises what `read_small` raises, and
        TimeoutError."""
        reading = self._reading
        if reading is None:
            loop = asyncio.get_running_loop()
            reading = loop.run_in_executor(None, read_small, self._path, MAX_BYTES)
            # If this source is stopped, nothing else uses the result.
            reading.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._reading = reading
        done, _ = await asyncio.wait((reading,), timeout=self._rules.timeout_s)
        if not done:
            raise TimeoutError
        self._reading = None
        return reading.result()


def _said(problems: Sequence[str]) -> str:
    more = len(problems) - _NAMED_MAX
    return "; ".join([*problems[:_NAMED_MAX], *([f"and {more} more"] if more > 0 else [])])


def file_name(path: str) -> str:
    """Return the name of the source in logs and metrics."""
    return f"file:{path}"
