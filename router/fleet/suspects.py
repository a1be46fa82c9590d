"""Remembers the bodies of requests that were in flight when engine processes died. Pure.

A request may crash every engine that gets it. A retry hides the first crash, and a client repeats a
request that failed, so one body could take down a whole fleet. A body that was in flight at two
deaths is therefore refused for a while, whoever sends it.

- `lost`: the router records a body whose attempt was lost at a replica. This alone shows nothing.
- `died`: a refused connection, a failed health check or a restart shows that the process has died.
  The bodies that it lost within `WINDOW_S` before were in flight at its death. A second death
  counts only for an attempt that was sent after the first loss: two processes of one node may die
  at once, and then both may have had the same innocent body.
- `answered`: a body that a replica answers without dying is innocent, and its record is deleted.
  Most innocent bodies in flight at a death are cleared so by their retry.

A body is identified by a hash of its bytes and its path. A client that changes one byte, for
example `seed`, sends another body, so this is no defence against an attacker: a limit on attempts
ensures that each request is lost at two engines at most, and at a third one if a copy is sent while
its retry hangs. The hash stops repetitions by SDKs, applications
and batches, which send the same bytes.

Must never: keep a body, or grow without limit.
"""

from __future__ import annotations

from secrets import randbits
from typing import Final

from xxhash import xxh3_128

# Seconds after a loss within which the death of its process must be noticed.
WINDOW_S: Final = 30.0
# Two losses of a body at one address that are less far apart belong to one death.
_SAME_S: Final = 1.0
# Seconds after a loss in which a death may still be unknown, although it has happened.
_FRESH_S: Final = 1.0
# Maximum number of bodies that are remembered: of each process, and of each other kind.
MOST: Final = 1024
_PROCESSES: Final = 64  # maximum number of processes with losses
_EDGE: Final = 512 * 1024  # bytes at each end of a body that are hashed
# A random seed, so that clients cannot create bodies with the hash of another client's body.
_SEED: Final = randbits(64)


def digest_of(path: bytes, body: list[bytes]) -> bytes:
    """Return the hash of a request. Only the beginning and the end of a long body are hashed."""
    size = sum(map(len, body))
    state = xxh3_128(b"%b %d " % (path, size), seed=_SEED)
    at = 0  # position of the piece in the body
    for piece in body:
        if size <= 2 * _EDGE:
            state.update(piece)
        else:
            if at < _EDGE:
                state.update(piece[: _EDGE - at])
            tail = size - _EDGE - at  # position in the piece at which the end of the body begins
            if tail < len(piece):
                state.update(piece[max(tail, 0) :])
        at += len(piece)
    return state.digest()


class Suspects:
    """The bodies that were in flight at deaths of engines. Times are monotonic seconds."""

    __slots__ = ("_deaths", "_died_at", "_hold_s", "_lost", "_until", "is_empty")

    def __init__(self) -> None:
        # How long a death is remembered and a body is refused; 0: never.
        self._hold_s = 0.0
        # By process: the bodies that it lost; when, and when their attempts were sent.
        self._lost: dict[str, dict[bytes, tuple[float, float]]] = {}
        # The bodies that were in flight at one death: the process, and when it lost the body.
        self._deaths: dict[bytes, tuple[str, float]] = {}
        self._until: dict[bytes, float] = {}  # The suspect bodies, and until when each is refused.
        self._died_at = 0.0  # When a process last died.
        self.is_empty = True  # Whether no body is suspect, and none was in flight at a death.

    def adopt(self, hold_s: float) -> None:
        self._hold_s = hold_s
        if not hold_s:
            self._lost.clear()
            self._forget()

    def _forget(self) -> None:
        self._deaths.clear()
        self._until.clear()
        self.is_empty = True

    @property
    def is_enabled(self) -> bool:
        return self._hold_s > 0.0

    def lost(self, process: str, body: bytes, now: float, sent_at: float = 0.0) -> None:
        """Record that an attempt with this body was lost at a process."""
        if not self._hold_s:
            return
        bodies = self._lost.get(process)
        if bodies is None:
            bodies = {}
            _put(self._lost, process, bodies, _PROCESSES)
        _put(bodies, body, (now, sent_at or now), MOST)

    def died(self, process: str, now: float) -> int:
        """Record that a process has died. Returns the number of bodies that became suspect."""
        found = 0
        for body, (lost_at, sent_at) in self._lost.pop(process, {}).items():
            if now - lost_at > WINDOW_S:
                continue
            other, at = self._deaths.get(body, ("", lost_at))
            is_first = not other or lost_at - at > self._hold_s
            if is_first:
                _put(self._deaths, body, (process, lost_at), MOST)
            elif sent_at < at:
                pass  # Both were in flight at once: a node with two processes may have failed.
            elif other != process or lost_at - at > _SAME_S:
                found += body not in self._until
                _put(self._until, body, now + self._hold_s, MOST)
            self.is_empty = False
            self._died_at = now
        return found

    def refuses(self, body: bytes, now: float) -> bool:
        """Return whether a body is suspect now."""
        if now - self._died_at > self._hold_s:
            self._forget()  # From now on, requests are not hashed.
        until = self._until.get(body)
        if until is None:
            return False
        if until > now:
            return True
        self.answered(body)
        return False

    def may_become(self, body: bytes, now: float) -> bool:
        """Return whether a body is suspect as soon as its last losses prove to be deaths."""
        last = [bodies[body][0] for bodies in self._lost.values() if body in bodies]
        fresh = sum(now - lost_at < _FRESH_S for lost_at in last)
        return fresh + (body in self._deaths) > 1

    def answered(self, body: bytes) -> None:
        """Forget a body, because a replica has answered it."""
        self._deaths.pop(body, None)
        self._until.pop(body, None)
        self.is_empty = not (self._deaths or self._until)

    @property
    def held(self) -> int:
        """The number of suspect bodies."""
        return len(self._until)


def _put(entries: dict, key: object, value: object, most: int) -> None:  # type: ignore[type-arg]
    """Set an entry as the newest one, and delete the oldest one if there are too many."""
    entries.pop(key, None)
    entries[key] = value
    if len(entries) > most:
        del entries[next(iter(entries))]
