"""Puts the messages of one publisher of KV events in order, and handles gaps, replays and restarts.

Pure: each method returns the steps that the caller must execute next.

Rules
1. Message numbers begin at 0 in each publisher process and rise by one. If the number of a live
   message is lower than before, it comes from a new process: all known blocks are dropped.
2. A gap in the numbers means that messages were lost. A replay is requested from the last applied
   message on, and must contain this message. If it does not, the process is a new one or the
   publisher's replay buffer is too short, and all known blocks are dropped. All known blocks are
   also dropped if the publisher has no replay.
3. While a replay is running, the caller must not pass live messages (they wait in their socket).
   Afterwards, live messages that were part of the replay are skipped, if their contents are the
   same.
4. If the router subscribed late, only a part of the blocks is known until the cache is cleared or
   message 0 arrives.

Steps are returned in the order in which they must be executed. Must never: do I/O or read a clock.
"""

from __future__ import annotations

from typing import Final

import msgspec

from router.addons.kv_events.decode import END_OF_REPLAY, Message

# maximum replayed messages whose checksums are kept: twice vLLM's replay buffer (buffer_steps)
OVERLAP: Final = 20_000
_TRIES: Final = 3  # maximum number of replays requested for one gap


class Begin(msgspec.Struct, gc=False):
    """Drop all known blocks of this publisher. `complete`: all later events will be received."""

    complete: bool


class Apply(msgspec.Struct, gc=False):
    payload: bytes


class Ask(msgspec.Struct, gc=False):
    """Request a replay from message number `start` on.

    The caller passes each message of the replay to `replayed`, or calls `replay_failed`.
    """

    start: int


Step = Begin | Apply | Ask


class Counters:
    """Counters of KV event messages: totals since the start."""

    __slots__ = (
        *("drops", "duplicates", "events", "gaps", "garbage", "messages", "reconnects"),
        *("replays", "replays_failed", "restarts", "unknown"),
    )

    def __init__(self) -> None:
        self.messages = 0  # number of applied messages
        self.events = 0  # number of events in the applied messages
        self.garbage = 0  # number of messages or events that could not be read
        self.unknown = 0  # number of events of an unknown type
        self.gaps = 0  # number of gaps in the message numbers
        self.replays = 0  # number of requested replays
        self.replays_failed = 0  # number of replays that did not reach their end
        self.restarts = 0  # number of restarts of publishers
        self.drops = 0  # number of times all blocks were dropped because messages were lost
        self.duplicates = 0  # number of live messages that were already part of a replay
        self.reconnects = 0


class Stream:
    """Puts the messages of one publisher in order."""

    __slots__ = (
        *("_counters", "_has_replay", "_held", "_last", "_live", "_overlap", "_proof", "_tries"),
        "is_replaying",
    )

    def __init__(self, has_replay: bool, counters: Counters) -> None:
        self._has_replay = has_replay
        self._counters = counters
        self._last: Message | None = None  # the last applied message, without its payload
        self._live = -1  # the number of the last live message
        self._held: Message | None = None  # the live message that waits until the replay ends
        self._proof: Message | None = None  # the message with which the replay must begin
        self._tries = 0
        # message number -> checksum, for replayed messages that have not arrived as live messages
        self._overlap: dict[int, int] = {}
        self.is_replaying = False

    def connected(self, again: bool) -> list[Step]:
        """Note that the subscription is connected. `again`: it was connected before, so messages
        may have been lost."""
        if again:
            self._counters.reconnects += 1
        if self._has_replay:
            # A replay that is already running is requested again, because it may have been
            # requested from a process that has ended.
            self._tries = 0
            return self._ask()
        if again and self._last is not None:
            return self._drop()
        return []

    def live(self, message: Message) -> list[Step]:
        """Handle a live message, from the subscription."""
        assert not self.is_replaying
        seq = message.seq
        if seq <= self._live:
            return self._restarted(message)
        mark = self._overlap.pop(seq, None)
        if mark is not None:
            if mark != message.mark:
                return self._restarted(message)
            self._live = seq
            self._tries = 0  # the replay has closed the gap
            self._counters.duplicates += 1
            return []
        last = self._last
        if last is not None and seq <= last.seq:
            return self._restarted(message)
        self._overlap.clear()
        if seq == (0 if last is None else last.seq + 1):
            self._tries = 0
            self._live = seq
            return [*([Begin(True)] if last is None else ()), self._apply(message)]
        if last is not None:
            self._counters.gaps += 1
        return self._missing(message)

    def _missing(self, message: Message) -> list[Step]:
        """Handle a gap: messages before this one are missing."""
        if self._has_replay and self._tries < _TRIES:
            self._held = message
            return self._ask()
        self._tries = 0
        begin: list[Step] = [Begin(False)] if self._last is None else self._drop()
        self._live = message.seq
        return [*begin, self._apply(message)]

    def replayed(self, message: Message) -> list[Step]:
        """Handle a message of the replay, or the end of the replay."""
        if not self.is_replaying:
            return []  # this message came too late: the replay was cancelled
        if message.seq == END_OF_REPLAY:
            return self._replay_ended()
        if self._proof is not None:
            proof, self._proof = self._proof, None
            if message.seq == proof.seq and message.mark == proof.mark:
                return []
            if message.seq == proof.seq:
                self._counters.restarts += 1
            return [*self._drop(), *self._ask()]
        last = self._last
        if last is not None and message.seq <= last.seq:
            return []
        steps: list[Step] = []
        if last is None:
            steps.append(Begin(message.seq == 0))
        elif message.seq != last.seq + 1:
            steps.extend(self._drop())
        steps.append(self._apply(message))
        if message.seq >= self._next_live() and len(self._overlap) < OVERLAP:
            self._overlap[message.seq] = message.mark
        return steps

    def _next_live(self) -> int:
        """Return the lowest message number that the subscription can still deliver."""
        return self._live + 1 if self._held is None else self._held.seq

    def _replay_ended(self) -> list[Step]:
        if self._proof is not None:
            # The replay lacks the last applied message: the publisher process is new, or the gap is
            # longer than the replay buffer.
            self._proof = None
            return [*self._drop(), *self._ask()]
        steps: list[Step] = []
        if self._last is None and self._held is None:
            # Nothing was published yet: the first message will be number 0, and none is missing.
            steps.append(Begin(True))
        return [*steps, *self._release()]

    def replay_failed(self) -> list[Step]:
        """Continue without a replay, because the publisher's answer is late or unreadable."""
        if not self.is_replaying:
            return []
        self._counters.replays_failed += 1
        self._proof = None
        self._tries = _TRIES
        steps = [*(self._drop() if self._last is not None else ()), *self._release()]
        self._tries = 0
        return steps

    # -- steps --------------------------------------------------------------------------------

    def _apply(self, message: Message) -> Apply:
        self._last = Message(message.seq, b"", message.mark)
        self._counters.messages += 1
        return Apply(message.payload)

    def _ask(self) -> list[Step]:
        self.is_replaying = True
        self._tries += 1
        self._proof = self._last
        self._counters.replays += 1
        return [Ask(0 if self._last is None else self._last.seq)]

    def _drop(self) -> list[Step]:
        self._counters.drops += 1
        self._forget()
        return [Begin(False)]

    def _forget(self) -> None:
        self._last = None
        self._live = -1
        self._overlap.clear()

    def _restarted(self, message: Message) -> list[Step]:
        """Handle a live message of a new publisher process."""
        self._counters.restarts += 1
        self._forget()
        self._tries = 0
        if message.seq == 0:
            self._live = 0
            return [Begin(True), self._apply(message)]
        # No block of the old process may be matched while a replay is running.
        begin: list[Step] = [Begin(False)] if self._has_replay else []
        return [*begin, *self._missing(message)]

    def _release(self) -> list[Step]:
        """End the replay, and process the live message that was held until then."""
        self.is_replaying = False
        held, self._held = self._held, None
        return [] if held is None else self.live(held)
