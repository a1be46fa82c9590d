"""Reads KV events from sockets: one subscriber per publisher, and one pump that runs all
subscribers in turn.

ZMQ's own thread receives the messages. This module reads them from the sockets, in callbacks of
their file descriptors, without a task, a future or a thread of the router. Decoding and indexing
hold the GIL, so a thread would not relieve the event loop. Instead all subscribers together get
SLICE_S seconds per iteration of the loop; the remaining work waits for the next iteration. Only the
decoding of one event is never interrupted: an event with 8,192 tokens takes 0.3 ms, an event with
131,072 tokens about 6 ms, and an event with the maximum of 1,048,576 tokens about 65 ms.

Must never: raise out of a callback, or leave a socket open.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Hashable
from time import perf_counter
from typing import Any, Final

import msgspec

from router.addons.kv_events.decode import (
    AllBlocksCleared,
    Event,
    Garbage,
    read_event,
    read_message,
    read_replay,
    split,
)
from router.addons.kv_events.index import ExactIndex
from router.addons.kv_events.stream import (
    OVERLAP,
    Apply,
    Ask,
    Begin,
    Counters,
    Step,
    Stream,
)
from router.fleet.engines.common.publishers import Source

SLICE_S: Final = 0.0005  # seconds of work per iteration of the event loop
# maximum number of blocks that are applied between two reads of the clock, in about 0.2 ms
_BLOCKS: Final = 128
_PURGE: Final = 512  # number of index entries that are freed between two reads of the clock
# maximum number of live messages in a socket's buffer; further messages wait at the publisher
_LIVE_HWM: Final = 1000
# maximum number of replayed messages in a socket's buffer: twice vLLM's replay buffer, because a
# publisher drops the messages of a replay that do not fit
_REPLAY_HWM: Final = OVERLAP
# maximum bytes of a frame; the event of a prompt of a million tokens has 6 MB
_FRAME_BYTES: Final = 8 * 1024 * 1024
# maximum number of frames that are read at once; one more than a message has
_FRAMES: Final = 5
_HEARTBEAT_MS: Final = 5000  # heartbeat interval; a vanished peer is noticed within three intervals


class Pump:
    """Runs the subscribers in turn; frees unused entries of the index when they are idle."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        index: ExactIndex,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self._index = index
        self._on_error = on_error
        self._ready: deque[Subscriber] = deque()
        self._turn: asyncio.Handle | None = None
        self._stopped = False

    def wake(self, subscriber: Subscriber) -> None:
        """Note that the subscriber may have work."""
        if subscriber not in self._ready:
            self._ready.append(subscriber)
        self.kick()

    def kick(self) -> None:
        """Note that a subscriber may have work, or that the index may have entries to free."""
        if self._turn is None and not self._stopped:
            self._turn = self._loop.call_soon(self._run)

    def discard(self, subscriber: Subscriber) -> None:
        if subscriber in self._ready:
            self._ready.remove(subscriber)

    def stop(self) -> None:
        self._stopped = True
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        self._ready.clear()

    def _run(self) -> None:
        self._turn = None
        deadline = perf_counter() + SLICE_S
        is_left = False
        while self._ready:
            subscriber = self._ready.popleft()
            try:
                if subscriber.work(deadline):
                    self._ready.append(subscriber)
            except Exception as err:
                self._on_error(err)
            if perf_counter() >= deadline:
                is_left = True
                break
        if not is_left:
            is_left = self._index.purge(_PURGE)
        if is_left or self._ready:
            self.kick()


class Subscriber:
    """Subscribes to one publisher of a replica and updates the index with its events."""

    def __init__(
        self,
        zmq: Any,
        context: Any,
        loop: asyncio.AbstractEventLoop,
        pump: Pump,
        index: ExactIndex,
        key: Hashable,
        source: Source,
        counters: Counters,
        replay_timeout_s: float = 2.0,
    ) -> None:
        """Several subscribers may share one `counters` object.

        Raises ValueError for an endpoint that ZMQ refuses.
        """
        self.source = source
        self.is_connected = False
        self._zmq = zmq
        self._context = context
        self._loop = loop
        self._pump = pump
        self._index = index
        self.key = key
        self._counters = counters
        self._timeout_s = replay_timeout_s
        self._stream = Stream(source.replay is not None, counters)
        self._steps: deque[Step] = deque()
        self._raws: deque[msgspec.Raw] = deque()
        self._events: deque[Event] = deque()
        self._was_connected = False
        self._replay: Any = None
        self._replay_timer: asyncio.TimerHandle | None = None
        self._replay_heard = 0.0
        self._open()
        index.add(key, source.rank)
        pump.wake(self)

    @property
    def is_busy(self) -> bool:
        """Whether a replay is running, or a received event is not in the index yet."""
        return self._stream.is_replaying or bool(self._steps or self._raws or self._events)

    # -- sockets ------------------------------------------------------------------------------

    def _open(self) -> None:
        zmq = self._zmq
        self._socket = self._new_socket(zmq.SUB, _LIVE_HWM)
        self._monitor: Any = None
        try:
            self._socket.setsockopt(zmq.SUBSCRIBE, self.source.topic.encode())
            self._monitor = self._socket.get_monitor_socket(
                zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
            )
            self._socket.connect(self.source.endpoint)
        except zmq.ZMQError as err:
            self._close_socket()
            raise ValueError(f"{self.source.endpoint!r} cannot be connected to: {err}") from None
        for socket in (self._socket, self._monitor):
            self._loop.add_reader(socket.getsockopt(zmq.FD), self._pump.wake, self)

    def _new_socket(self, kind: int, most: int) -> Any:
        zmq = self._zmq
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.RCVHWM, most)
        socket.setsockopt(zmq.MAXMSGSIZE, _FRAME_BYTES)
        socket.setsockopt(zmq.RECONNECT_IVL, 100)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 5000)
        socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * _HEARTBEAT_MS)
        return socket

    def _close_socket(self) -> None:
        if self._monitor is not None:
            self._socket.disable_monitor()
            self._monitor.close(linger=0)
        self._socket.close(linger=0)

    def stop(self) -> None:
        """Close all sockets, and drop this publisher's blocks from the index."""
        if self._socket.closed:
            return
        self._end_replay()
        for socket in (self._socket, self._monitor):
            self._loop.remove_reader(socket.getsockopt(self._zmq.FD))
        self._close_socket()
        self._pump.discard(self)
        self._steps.clear()
        self._raws.clear()
        self._events.clear()
        self._index.remove(self.key, self.source.rank)
        self._pump.kick()

    # -- work ---------------------------------------------------------------------------------

    def work(self, deadline: float) -> bool:
        """Continue until `deadline` (perf_counter seconds); returns whether more work is left."""
        if self._socket.closed:
            return False
        while self._heard_monitor():
            pass
        while True:
            if self._events:
                event = self._events.popleft()
                self._index.apply(self.key, self.source.rank, event)
            elif self._raws:
                self._decode(self._raws.popleft())
            elif self._steps:
                self._do(self._steps.popleft())
            elif not self._receive():
                return False
            if perf_counter() >= deadline:
                return True

    def _decode(self, raw: msgspec.Raw) -> None:
        try:
            event = read_event(raw)
        except Garbage:
            self._not_understood()
            return
        if event is None:
            self._counters.unknown += 1
            self._forget()
            return
        self._counters.events += 1
        if isinstance(event, AllBlocksCleared):
            self._events.append(event)
        else:
            self._events.extend(event.pieces(_BLOCKS))

    def _do(self, step: Step) -> None:
        if isinstance(step, Apply):
            try:
                raws, _ = split(step.payload)
            except Garbage:
                self._not_understood()
            else:
                self._raws.extend(raws)
        elif isinstance(step, Begin):
            self._index.clear(self.key, self.source.rank, complete=step.complete)
            self._pump.kick()
        elif isinstance(step, Ask):
            self._ask(step.start)

    def _receive(self) -> bool:
        """Handle one message from one of the sockets; False: there is no message."""
        if self._stream.is_replaying:
            # Live messages wait in the subscription's socket until the replay is over. Reading the
            # socket's state resets its file descriptor, which would otherwise wake the loop again
            # and again.
            self._socket.getsockopt(self._zmq.EVENTS)
            return self._heard_replay()
        frames = self._take(self._socket)
        if frames is None:
            return False
        message = read_message(frames)
        if message is None:
            self._not_understood()
        else:
            self._steps.extend(self._stream.live(message))
        return True

    def _not_understood(self) -> None:
        """Handle a message or an event that cannot be read."""
        self._counters.garbage += 1
        self._forget()

    def _forget(self) -> None:
        """Drop the known blocks: an event was not understood, so they may be wrong."""
        self._index.clear(self.key, self.source.rank)
        self._pump.kick()

    def _take(self, socket: Any) -> list[bytes] | None:
        """Return the frames of the next message; `None`: there is no message.

        Of a message with too many frames, _FRAMES frames are returned, which are invalid. The
        further frames follow as other messages, because one call must not take long.
        """
        zmq = self._zmq
        frames: list[bytes] = []
        try:
            while len(frames) < _FRAMES:
                frames.append(socket.recv(zmq.NOBLOCK))
                if not socket.getsockopt(zmq.RCVMORE):
                    break
        except zmq.Again:
            return None
        return frames

    def _heard_monitor(self) -> bool:
        frames = self._take(self._monitor)
        if frames is None:
            return False
        event = int.from_bytes(frames[0][:2], sys.byteorder)
        if event == self._zmq.EVENT_DISCONNECTED:
            self.is_connected = False
        else:
            self.is_connected = True
            self._steps.extend(self._stream.connected(self._was_connected))
            self._was_connected = True
        self._index.connected(self.key, self.source.rank, self.is_connected)
        return True

    # -- replays ------------------------------------------------------------------------------

    def _ask(self, start: int) -> None:
        """Request a replay over a new socket, so that answers to two requests cannot be mixed
        up."""
        self._end_replay()
        zmq = self._zmq
        self._replay = socket = self._new_socket(zmq.DEALER, _REPLAY_HWM)
        try:
            socket.connect(self.source.replay)
            socket.send_multipart([b"", start.to_bytes(8, "big")], zmq.NOBLOCK)
        except zmq.ZMQError:
            self._replay_lost()
            return
        self._loop.add_reader(socket.getsockopt(zmq.FD), self._pump.wake, self)
        self._replay_heard = self._loop.time()
        self._replay_timer = self._loop.call_later(self._timeout_s, self._replay_due)
        self._pump.wake(self)

    def _heard_replay(self) -> bool:
        frames = None if self._replay is None else self._take(self._replay)
        if frames is None:
            return False
        self._replay_heard = self._loop.time()
        message = read_replay(frames)
        if message is None:
            self._counters.garbage += 1
            self._replay_lost()
            return True
        steps = self._stream.replayed(message)
        if not self._stream.is_replaying:
            self._end_replay()
        self._steps.extend(steps)
        return True

    def _replay_due(self) -> None:
        self._replay_timer = None
        silent_s = self._loop.time() - self._replay_heard
        # Answers that have arrived but are not processed yet prevent a timeout of the replay.
        if silent_s < self._timeout_s or self._steps or self._raws or self._events:
            rest_s = max(self._timeout_s - silent_s, 0.01)
            self._replay_timer = self._loop.call_later(rest_s, self._replay_due)
        else:
            self._replay_lost()
            self._pump.wake(self)

    def _replay_lost(self) -> None:
        self._end_replay()
        self._steps.extend(self._stream.replay_failed())

    def _end_replay(self) -> None:
        if self._replay_timer is not None:
            self._replay_timer.cancel()
            self._replay_timer = None
        if self._replay is not None:
            if not self._replay.closed:
                self._loop.remove_reader(self._replay.getsockopt(self._zmq.FD))
                self._replay.close(linger=0)
            self._replay = None
