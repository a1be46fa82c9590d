"""Writes rare log messages (replica up or down, reload, drain) as JSON lines to standard error.

The messages go through the standard library's logging, so messages of asyncio and aiohttp have the
same format. They also have the same rate limit, whose key is the text of the problem: for each
source of messages, one line a minute for each different text, and at most `TEXTS_MAX` lines. So a
new problem is logged although another problem of the same source was just logged. Addresses, IDs
and long numbers in the text are not compared. The next line of the source contains the number of
suppressed lines (`kept_back`). Changes of state have no limit here (`key=None`);
`app/fleet_log.py` limits those of replicas.

A thread writes the lines. If standard error is blocked, lines are lost, but the event loop
continues.

Must never: raise into its caller, or be used for each request or token (a line costs 12.6 us).
"""

from __future__ import annotations

import logging
import re
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from router.observe.log.sink import Sink

EVERY_S = 60.0  # the time in seconds in which at most one line per key and text is written
TEXTS_MAX = 10  # maximum number of lines per key in that time, each with another text
KEYS_MAX = 1024  # maximum number of keys in memory; for one more, the oldest key is removed
QUEUE_BYTES = 1 << 20
TEXT_CHARS_MAX = 2_048
TRACE_CHARS_MAX = 8_192
STDERR = 2

_PROBLEMS = ("error", "why", "problem")  # the fields that describe a problem
# Parts of a text that differ between two cases of one problem: addresses, IDs, long or broken
# numbers.
_VARYING = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8,}|\d{4,}|\d+\.\d+")

_logger = logging.getLogger("hedgerow")


def log_event(level: int, message: str, /, *, key: str | None = "", **fields: object) -> None:
    """Logs an event. `level` is a level of the module `logging`.

    `message` is a fixed text; varying values go into `fields`. The rate limit compares the message,
    `key`, and the fields of `_PROBLEMS`. Events with the same message and the same problem, such as
    for different replicas, need different values of `key`, or they suppress each other. If `key` is
    None, the event is never suppressed.
    """
    if _logger.isEnabledFor(level):
        _logger.log(level, "%s", message, extra={"event": (message, key), "fields": fields})


class RateLimit:
    """Lets one line per key and text pass in `every_s` seconds, and counts the suppressed lines."""

    def __init__(
        self, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._every_s = every_s
        self._clock = clock
        self._seen: dict[object, _Seen] = {}

    def admit(self, key: object, text: str = "") -> int | None:
        """Return None if a line with this key and this text is to be suppressed.

        Otherwise returns the number of lines that were suppressed since the key's last line.
        """
        now = self._clock()
        seen = self._seen.get(key)
        if seen is None or now - seen.since >= self._every_s:
            # Removing the key and adding it again moves it to the end of the dict, so the first key
            # is the oldest.
            self._seen.pop(key, None)
            if len(self._seen) >= KEYS_MAX:
                del self._seen[next(iter(self._seen))]
            self._seen[key] = _Seen(now, {hash(text)})
            return 0 if seen is None else seen.suppressed
        if hash(text) in seen.texts or len(seen.texts) >= TEXTS_MAX:
            seen.suppressed += 1
            return None
        seen.texts.add(hash(text))
        suppressed, seen.suppressed = seen.suppressed, 0
        return suppressed


@dataclass(slots=True)
class _Seen:
    """The lines of one key."""

    since: float  # when the present time of `every_s` seconds began
    texts: set[int]  # the hashes of the texts that were written in it
    suppressed: int = 0  # the number of lines that were suppressed since the last line


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
            kept_back = 0 if key[1] is None else self._limit.admit(key, _problem(record))
            if kept_back is not None and not self._sink.put(_line(record, kept_back)):
                self._unwritten += 1
        except Exception:
            self._unwritten += 1

    def close(self) -> None:
        """Writes the waiting lines, for at most a second. Called by logging.shutdown at exit."""
        self._sink.close()
        super().close()


def install(fd: int = STDERR, level: str = "info") -> EventHandler:
    """Writes the events of the router and of every library as JSON lines to `fd` from now on.

    `level`: the name of the lowest level that is written.
    """
    handler = EventHandler(fd)
    logging.getLogger().addHandler(handler)
    set_level(level)
    return handler


def set_level(level: str) -> None:
    """Writes only events of this level, and of higher levels, from now on."""
    logging.getLogger().setLevel(level.upper())


def uninstall(handler: EventHandler) -> None:
    root = logging.getLogger()
    root.removeHandler(handler)
    root.setLevel(logging.WARNING)
    handler.close()


def _problem(record: logging.LogRecord) -> str:
    """Return the text that the rate limit compares: of the router's events, the problem."""
    fields = getattr(record, "fields", None)
    if fields is None:
        text = f"{record.getMessage()}\n{record.exc_info and record.exc_info[1]!r}"
    else:
        text = "\n".join(str(fields[name]) for name in _PROBLEMS if name in fields)
    return _VARYING.sub("#", text[:TEXT_CHARS_MAX])


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
