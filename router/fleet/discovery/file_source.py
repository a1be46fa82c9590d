"""A file that lists replicas, as a source.

An invalid content is decoded again after a time that doubles, because it may name a credential that
cannot be read yet.

An empty list (`[]`) is a valid content: the file names no replica. A file that is missing, empty or
invalid says nothing.

Must never: use a part of a file.
"""

from __future__ import annotations

import asyncio
from random import Random

from router.config.document import MAX_BYTES
from router.config.in_force import InForce
from router.config.load import parse_replicas
from router.core.clock import monotonic
from router.core.errors import ConfigError
from router.fleet.discovery.roster import Found
from router.fleet.discovery.source import Look, Source, retry_after_s, summary
from router.fleet.monitor.small_file import SmallFile


class FileSource(Source):
    """One watched file."""

    def __init__(self, path: str, in_force: InForce, rng: Random) -> None:
        super().__init__(file_name(path))
        self._file = SmallFile(path, MAX_BYTES)
        self._in_force = in_force
        self._rng = rng
        self._stable = Stable()
        self._problem = ""  # The problem of the content that was used last.
        self._failures = 0  # How often a content was refused, in a row.
        self._again_at = 0.0  # The time at which it is decoded again.

    def reloaded(self) -> None:
        """Decode the content again at the next look: an entry is valid only if its pool is
        configured."""
        self._stable.again()

    async def look(self) -> Look:
        config = self._in_force.config
        rules = config.discovery
        wait_s = rules.interval_s
        try:
            raw = await self._file.read(rules.timeout_s)
        except (OSError, ValueError) as err:
            self._stable.lost()
            why = err.strerror if isinstance(err, OSError) and err.strerror else str(err)
            return Look(wait_s, problem=f"cannot be read: {why}")
        if raw is None:
            self._stable.lost()
            return Look(wait_s, problem="does not exist")
        if self._failures and monotonic() >= self._again_at:
            self._stable.again()
        if not self._stable.is_new(raw):
            return Look(wait_s, problem=self._problem)
        try:
            replicas = await asyncio.to_thread(parse_replicas, raw, config)
        except ConfigError as err:
            self._failures += 1
            self._again_at = monotonic() + retry_after_s(self._failures, rules, self._rng)
            self._problem = summary(err.problems)
            return Look(wait_s, problem=self._problem)
        self._failures = 0
        self._problem = ""
        return Look(wait_s, [Found(replica) for replica in replicas])


class Stable:
    """Decides when the content of a watched file is used.

    A program that does not replace the file by a rename may be in the middle of writing it, and a
    part of a YAML list is often a valid list. So a changed content is used only if the next look
    finds the same content.
    """

    def __init__(self) -> None:
        self._seen: bytes | None = None  # The content at the last look.
        self._used: bytes | None = None  # The content that is in use; `None`: none is.
        self._is_first = True  # No content was ever used.

    def is_new(self, content: bytes) -> bool:
        """Return whether this content is to be used now.

        The first content is used at once, because the router has nothing else.
        """
        is_same = self._is_first or content == self._seen
        self._seen = content
        if not is_same or content == self._used:
            return False
        self._used = content
        self._is_first = False
        return True

    def again(self) -> None:
        """Let the content in use count as new, because its meaning may have changed."""
        self._used = None

    def lost(self) -> None:
        """Record a look that found no content."""
        self._seen = None


def file_name(path: str) -> str:
    """Return the name of the source in logs and metrics."""
    return f"file:{path}"
