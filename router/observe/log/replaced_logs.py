"""Counts the lines that access logs lose after a reload has replaced them.

A replaced log writes its last lines in its thread. It is kept only until the thread has ended.
"""

from __future__ import annotations

from router.observe.log.access_log import AccessLog


class ReplacedLogs:
    """The closed access logs of one router."""

    def __init__(self) -> None:
        self._logs: list[AccessLog] = []
        self._dropped = 0  # Lines lost by logs that have ended.

    def __len__(self) -> int:
        return len(self._logs)

    def add(self, log: AccessLog) -> None:
        """Adds a log. Its `close` was called."""
        self._forget_ended()
        self._logs.append(log)

    @property
    def dropped(self) -> int:
        """The number of lines lost by all logs that were added."""
        self._forget_ended()
        return self._dropped + sum(log.dropped for log in self._logs)

    def _forget_ended(self) -> None:
        left: list[AccessLog] = []
        for log in self._logs:
            if log.has_ended:
                self._dropped += log.dropped
            else:
                left.append(log)
        self._logs = left
