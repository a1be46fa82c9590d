"""Writes rare log messages (replica up or down, reload, drain) as JSON lines to standard error.

The messages go through the standard library's logging, so messages of asyncio and aiohttp have the
same format. They also have the same rate limit: one line a minute for each message. The next line
of the message contains the number of suppressed lines. A thread writes the lines. If standard error
is blocked, lines are lost, but the event loop continues.

Must never: raise into its caller, or be used for each request or token (a line costs 12.6 us).
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable

import msgspec

from router.observe.log.sink import Sink

EVERY_S = 60.0  # the time in seconds in which at most one line per key is written
KEYS_MAX = 1024  # maximum number of keys in memory; for one more, the oldest key is removed
QUEUE_BYTES = 1 << 20
TEXT_CHARS_MAX = 2_048
TRACE_CHARS_MAX = 8_192
STDERR = 2

_logger = logging.getLogger("hedgerow")


def log_event(level: int, message: str, /, *, key: str | None = "", **fields: object) -> None:
    """Logs an event. `level` is a level of the module `logging`.

    `message` is a fixed text; varying values go into `fields`. Events with the same message, such
    as for different replicas, need different values of `key`, or they suppress each other. If `key`
    is None, the event is never suppressed.
    """
    if _logger.isEnabledFor(level):
        _logger.log(level, "%s", message, extra={"event": (message, key), "fields": fields})


class RateLimit:
    """Lets one line per key pass in `every_s` seconds, and counts the suppressed lines."""

    def __init__(
        self, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._every_s = every_s
        self._clock = clock
        # For each key: the time of its last line, and the number of lines suppressed since then.
        self._seen: dict[object, list[float]] = {}

    def admit(self, key: object) -> int | None:
        """Returns None if a line with this key is to be suppressed.

        Otherwise returns the number of lines that were suppressed since the key's last line.
        """
        now = self._clock()
        seen = self._seen.get(key)
        if seen is not None and now - seen[0] < self._every_s:
            seen[1] += 1
            return None
        # Removing the key and adding it again moves it to the end of the dict, so the first key is
        # the oldest.
        self._seen.pop(key, None)
        if len(self._seen) >= KEYS_MAX:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = [now, 0]
        return int(seen[1]) if seen is not None else 0


class EventHandler(logging.Handler):
    """A logging handler that writes JSON lines to a descriptor through a `Sink`."""

    def __init__(self, fd: int = STDERR, limit: RateLimit | None = None) -> None:
        super().__init__()
        self._sink = Sink(fd, QUEUE_BYTES)
        self._limit = limit or RateLimit()
        self._unwritten = 0

    @property
    def dropped(self) -> int:
        """The number of lines lost because the descriptor was blocked or broken."""
        return self._unwritten + self._sink.lost_lines

    def emit(self, record: logging.LogRecord) -> None:
        # Messages of libraries have varying texts, so their key is the line of source code that
        # logs them.
        key = getattr(record, "event", None) or (record.pathname, record.lineno)
        try:
            kept_back = 0 if key[1] is None else self._limit.admit(key)
            if kept_back is not None and not self._sink.put(_line(record, kept_back)):
                self._unwritten += 1
        except Exception:
            self._unwritten += 1

    def close(self) -> None:
        """Writes the waiting lines, for at most a second. Called by logging.shutdown at exit."""
        self._sink.close()
        super().close()


def install(fd: int = STDERR, level: int = logging.INFO) -> EventHandler:
    """Writes the events of the router and of every library as JSON lines to `fd` from now on."""
    handler = EventHandler(fd)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
    return handler


def uninstall(handler: EventHandler) -> None:
    """Undoes `install` and closes the handler."""
    root = logging.getLogger()
    root.removeHandler(handler)
    root.setLevel(logging.WARNING)
    handler.close()


def _line(record: logging.LogRecord, kept_back: int) -> bytes:
    line: dict[str, object] = {
        "ts": int(record.created * 1e3) / 1e3,
        "level": record.levelname.lower(),
        "message": _text(record.getMessage()),
    }
    if record.name != _logger.name:
        line["logger"] = record.name
    for name, value in getattr(record, "fields", {}).items():
        line.setdefault(name, _plain(value))
    if kept_back:
        line["kept_back"] = kept_back
    if record.exc_info and record.exc_info[1] is not None:
        trace = "".join(traceback.format_exception(record.exc_info[1]))
        line["exception"] = _text(trace[-TRACE_CHARS_MAX:], TRACE_CHARS_MAX)
    return msgspec.json.encode(line) + b"\n"


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 53 else str(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(part) for part in value]
    return _text(str(value))


def _text(text: str, cap: int = TEXT_CHARS_MAX) -> str:
    return text[:cap].encode("utf-8", "replace").decode()
