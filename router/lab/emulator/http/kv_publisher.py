"""Publishes KV events over ZMQ: a PUB socket, and a ROUTER socket for replays of lost batches.

A batch of events is sent as `[topic, seq as 8 bytes big-endian, payload]`. After each start of the
engine, seq begins at 0. Nothing is sent while the cache does not change. A client requests a replay
with `["", seq]`. The answer is `["", topic, seq, payload]` for each kept batch from that seq on,
then an end marker whose seq is eight 0xff bytes (vLLM 0.25 and later).

Only this file imports pyzmq, and this file is imported only when KV events are requested. Its
functions run on the event loop's thread and never block: messages that a subscriber does not read
are dropped, as in the real engines.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from time import time

import zmq

from router.lab.emulator.core.kv_events import KvEvent

BUFFER_STEPS = 10_000  # maximum number of batches kept for replay
HIGH_WATER = 100_000
_END = b"\xff" * 8


Payload = Callable[[Sequence[KvEvent], float], bytes]


class KvPublisher:
    """The publisher of one engine, on two free ports of `host`. Raises OSError if none is free."""

    def __init__(self, host: str, topic: str, payload: Payload, block_size: int) -> None:
        self.topic = topic
        self.block_size = block_size
        self._topic = topic.encode()
        self._payload = payload
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        self._kept: deque[tuple[bytes, bytes]] = deque(maxlen=BUFFER_STEPS)
        self._seq = 0
        where = f"[{host}]" if ":" in host else host
        try:
            self._pub = self._socket(zmq.PUB, HIGH_WATER, ":" in host)
            self._replay = self._socket(zmq.ROUTER, 0, ":" in host)
            self.port = self._pub.bind_to_random_port(f"tcp://{where}")
            self.replay_port = self._replay.bind_to_random_port(f"tcp://{where}")
        except zmq.ZMQError as err:
            self._context.destroy(linger=0)
            raise OSError(err.errno, f"cannot publish KV events on {host}: {err}") from None
        self.endpoint = f"tcp://{where}:{self.port}"
        self.replay_endpoint = f"tcp://{where}:{self.replay_port}"
        self._loop.add_reader(self._replay.FD, self._asked)

    def _socket(self, kind: int, most: int, is_v6: bool) -> zmq.Socket[bytes]:
        sock = self._context.socket(kind)
        sock.setsockopt(zmq.LINGER, 0)
        sock.setsockopt(zmq.SNDHWM, most)
        if is_v6:
            sock.setsockopt(zmq.IPV6, 1)
        return sock

    def publish(self, events: Sequence[KvEvent]) -> None:
        """Publish one batch: the changes of one step."""
        payload = self._payload(events, time())
        seq = self._seq.to_bytes(8, "big")
        self._seq += 1
        self._kept.append((seq, payload))
        try:
            self._pub.send_multipart([self._topic, seq, payload], zmq.NOBLOCK)
        except zmq.Again:
            pass  # A PUB socket drops messages instead; this only ensures that a step never fails.

    def restart(self) -> None:
        """Begin again with seq 0, as a restarted engine does. Older batches are not replayed."""
        self._kept.clear()
        self._seq = 0

    def close(self) -> None:
        self._loop.remove_reader(self._replay.FD)
        self._context.destroy(linger=0)

    def source(self) -> dict[str, object]:
        """This publisher in the answer of vLLM's /kv_event_sources."""
        return {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            # vLLM reports `*` when it binds this port. With a host name, vLLM would connect to it.
            "endpoint": f"tcp://*:{self.port}",
            "replay_endpoint": f"tcp://*:{self.replay_port}",
            "buffer_steps": BUFFER_STEPS,
            "hwm": HIGH_WATER,
            "max_queue_size": HIGH_WATER,
            "topic": self.topic,
        }

    def server_info(self) -> dict[str, object]:
        """The field `kv_events` of SGLang's /server_info."""
        return {
            "publisher": "zmq",
            "endpoint_host": "*",
            "endpoint_port_base": self.port,
            "topic": self.topic,
            "block_size": self.block_size,
            "dp_size": 1,
            "replay_endpoint_port_base": self.replay_port,
        }

    def _asked(self) -> None:
        """Answer all waiting replay requests, because ZMQ signals only the arrival of new ones."""
        sock = self._replay
        while int(sock.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            frames = sock.recv_multipart(zmq.NOBLOCK)
            if len(frames) != 3 or frames[1] or len(frames[2]) != 8:
                continue
            who, start = frames[0], frames[2]
            for seq, payload in self._kept:
                if seq >= start:
                    sock.send_multipart([who, b"", self._topic, seq, payload], zmq.NOBLOCK)
            sock.send_multipart([who, b"", b"", _END, b""], zmq.NOBLOCK)
