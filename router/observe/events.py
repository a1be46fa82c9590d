"""Writes rare operational messages (replica up or down, reload, drain) as JSON lines to standard
error.

The messages use stdlib logging, so lines of asyncio and aiohttp have the same shape and the same
rate limit: one line per message and minute. The next line contains the number of suppressed lines.
A thread writes the lines. If standard error is blocked, lines are lost, but the event loop
continues.

Must never: raise into its caller, or be used per request or per token (a line costs 12.6 us).
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable

import msgspec

from router.observe.log.sink import Sink

EVERY_S = 60.0  # seconds in which one line per key is written
KEYS_MAX = 1024  # maximum number of keys in memory; above it the oldest key is removed
QUEUE_BYTES = 1 << 20
TEXT_CHARS_MAX = 2_048
TRACE_CHARS_MAX = 8_192
STDERR = 2

_logger = logging.getLogger("hedgerow")


def log_event(level: int, message: str, /, *, key: str | None = "", **fields: object) -> None:
    """Log an event; `level` is one of logging's.

    `message` is a fixed text; varying values go into `fields`. Messages with the same text that
    must not suppress each other (such as one per replica) need different keys in `key`. With
    `key` None the message is never suppressed.
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
        # key -> [time of the last line, suppressed lines]
        self._seen: dict[object, list[float]] = {}

    def admit(self, key: object) -> int | None:
        """None if this line is suppressed, else the number suppressed since the last line."""
        now = self._clock()
        seen = self._seen.get(key)
        if seen is not None and now - seen[0] < self._every_s:
            seen[1] += 1
            return None
        # Moves the key to the end: dicts iterate in the order of insertion.
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
        """Lines lost to a blocked or broken descriptor, without suppressed lines."""
        return self._unwritten + self._sink.lost_lines

    def emit(self, record: logging.LogRecord) -> None:
        # Messages of libraries have varying text, so the key is their place in the source.
        key = getattr(record, "event", None) or (record.pathname, record.lineno)
        try:
            kept_back = 0 if key[1] is None else self._limit.admit(key)
            if kept_back is not None and not self._sink.put(_line(record, kept_back)):
                self._unwritten += 1
        except Exception:
            self._unwritten += 1

    def close(self) -> None:
        """Writes the waiting lines, for at most a second. logging.shutdown calls it at exit."""
        self._sink.close()
        super().close()


def install(fd: int = STDERR, level: int = logging.INFO) -> EventHandler:
    """Logs events of the process and of every library as JSON lines to `fd`."""
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
