"""An engine's KV event publisher with real ZMQ sockets.

The socket is an XPUB, not a PUB: XPUB is the same on the wire, and it reports subscribers, so that
no test has to sleep.
"""

import asyncio
from typing import Any

import zmq

from tests.addons.kv_events.events import payload

END = b"\xff" * 8


class Publisher:
    """A KV event publisher. `publish` sends an event, `lose` only uses up a sequence number, and
    `restart` starts a new process on the same ports.
    """

    def __init__(
        self,
        *,
        replay: bool = True,
        topic: bytes = b"kv",
        with_topic: bool = True,
        buffer_steps: int = 10_000,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        self._has_replay = replay
        self.topic = topic
        # Whether replays have a topic frame: vLLM 0.25+, SGLang 0.5.22+.
        self.with_topic = with_topic
        self.buffer_steps = buffer_steps
        self.endpoint = "tcp://127.0.0.1:*"
        self.replay_endpoint: str | None = "tcp://127.0.0.1:*" if replay else None
        self.subscribed = asyncio.Event()
        self.asked: list[int] = []  # start numbers of the requested replays
        self.mute = False  # if true, replay requests are received and not answered
        self.epoch = 0.0
        self._open()

    def _open(self) -> None:
        self.seq = 0
        self.buffer: list[tuple[int, bytes]] = []
        self.epoch += 1
        self.subscribed.clear()
        self._pub = self._bound(zmq.XPUB, self.endpoint)
        self.endpoint = self._pub.getsockopt_string(zmq.LAST_ENDPOINT)
        self._watch(self._pub, self._on_subscription)
        self._router: zmq.Socket[bytes] | None = None
        if self._has_replay:
            assert self.replay_endpoint is not None
            self._router = self._bound(zmq.ROUTER, self.replay_endpoint)
            self.replay_endpoint = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
            self._watch(self._router, self._on_replay)

    def _bound(self, kind: int, endpoint: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, 100_000)
        try:
            socket.bind(endpoint)
        except zmq.ZMQError:
            socket.close(linger=0)
            raise
        return socket

    def _watch(self, socket: zmq.Socket[bytes], on_frames: Any) -> None:
        def readable() -> None:
            while not socket.closed:
                try:
                    frames = socket.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    return
                on_frames(frames)

        self._loop.add_reader(socket.getsockopt(zmq.FD), readable)
        self._loop.call_soon(readable)

    def _on_subscription(self, frames: list[bytes]) -> None:
        if frames[0][:1] == b"\1":
            self.subscribed.set()
        else:
            self.subscribed.clear()

    def _on_replay(self, frames: list[bytes]) -> None:
        assert len(frames) == 3 and frames[1] == b"", "a request is [id][empty][seq]"
        start = int.from_bytes(frames[2], "big")
        self.asked.append(start)
        if self.mute:
            return
        assert self._router is not None
        for seq, data in self.buffer:
            if seq >= start:
                self._router.send_multipart([frames[0], b"", *self._named(seq.to_bytes(8), data)])
        end = [b"", END, b""] if self.with_topic else [END, b""]
        self._router.send_multipart([frames[0], b"", *end])

    def _named(self, seq: bytes, data: bytes) -> list[bytes]:
        return [self.topic, seq, data] if self.with_topic else [seq, data]

    def lose(self, *events: Any) -> bytes:
        """Use up a sequence number, as for an event that is lost on the way to every subscriber."""
        data = payload(*events, ts=self.epoch * 1e6 + self.seq)
        self.buffer.append((self.seq, data))
        del self.buffer[: -self.buffer_steps]
        self.seq += 1
        return data

    def publish(self, *events: Any) -> None:
        seq = self.seq
        self.send(self.topic, seq.to_bytes(8), self.lose(*events))

    def send(self, *frames: bytes) -> None:
        """Send raw frames."""
        self._pub.send_multipart(list(frames), zmq.NOBLOCK)

    def kill(self) -> None:
        for socket in (self._pub, self._router):
            if socket is not None and not socket.closed:
                self._loop.remove_reader(socket.getsockopt(zmq.FD))
                socket.close(linger=0)

    async def restart(self) -> None:
        """Restart as a new process on the same ports."""
        self.kill()
        for _ in range(1000):
            try:
                self._open()
                return
            except zmq.ZMQError:  # the closed socket still has the port
                self.kill()
                await asyncio.sleep(0.005)
        raise AssertionError("the ports stay taken")

    def close(self) -> None:
        self.kill()
        self._context.destroy(linger=0)
