"""Subscribers over real ZMQ sockets: gaps, replays, restarts, invalid data, bursts."""

import asyncio
from itertools import pairwise

import pytest
import zmq

from router.addons.kv_events import reader
from router.addons.kv_events.decode import Message, read_message
from router.addons.kv_events.index import ExactIndex
from router.addons.kv_events.reader import Pump, Subscriber
from router.addons.kv_events.stream import Counters
from router.fleet.engines.common.publishers import Source
from tests.addons.kv_events.app.hearing import PATIENCE_S, Hearing, hearing, until
from tests.addons.kv_events.app.publisher import Publisher
from tests.addons.kv_events.events import CLEARED, removed, stored
from tests.harness.running import scenario

A, B, C = [1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]


@scenario
async def test_events_arrive() -> None:
    async with hearing(Publisher()) as heard:
        heard.publisher.publish(stored([1, 2], [*A, *B]))
        await until(lambda: heard.held(*A, *B) == 2)
        heard.publisher.publish(removed([2]))
        await until(lambda: heard.held(*A, *B) == 1)
        heard.publisher.publish(CLEARED)
        await until(lambda: not heard.held(*A, *B))
        assert heard.index.is_complete("r")
        assert (heard.counters.messages, heard.counters.events) == (3, 3)
        assert (heard.counters.gaps, heard.counters.drops) == (0, 0)


@pytest.mark.parametrize("with_topic", [False, True], ids=["vllm 0.24", "vllm 0.25"])
@scenario
async def test_what_was_before_is_replayed(with_topic: bool) -> None:
    publisher = Publisher(with_topic=with_topic)
    publisher.publish(stored([1], A))
    async with hearing(publisher) as heard:
        assert heard.held(*A) == 1
        assert heard.index.is_complete("r")
        assert publisher.asked == [0]


@pytest.mark.parametrize("with_topic", [False, True], ids=["vllm 0.24", "vllm 0.25"])
@scenario
async def test_a_gap_is_closed_by_a_replay(with_topic: bool) -> None:
    async with hearing(Publisher(with_topic=with_topic)) as heard:
        publisher = heard.publisher
        publisher.publish(stored([1], A))
        await until(lambda: heard.held(*A) == 1)
        publisher.lose(stored([2], B, parent=1))
        publisher.publish(stored([3], C, parent=2))
        await until(lambda: heard.held(*A, *B, *C) == 3)
        # Start of the replay at the connection, and of the one after the last received event.
        assert publisher.asked == [0, 0]
        assert (heard.counters.gaps, heard.counters.drops) == (1, 0)
        assert heard.index.is_complete("r")


@scenario
async def test_a_replay_that_is_never_answered() -> None:
    async with hearing(Publisher(), replay_timeout_s=0.3) as heard:
        publisher = heard.publisher
        publisher.publish(stored([1], A))
        await until(lambda: heard.held(*A) == 1)
        publisher.mute = True
        publisher.lose(removed([1]))
        publisher.publish(stored([2], B))
        await until(lambda: heard.held(*B) == 1)
        assert heard.held(*A) == 0
        assert (heard.counters.replays_failed, heard.counters.drops) == (1, 1)


@scenario
async def test_waiting_for_a_replay_uses_no_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Live messages stay in their socket during a replay and must not wake the loop
    continuously.
    """
    calls = 0
    work = Subscriber.work

    def counted(self: Subscriber, deadline: float) -> bool:
        nonlocal calls
        calls += 1
        return work(self, deadline)

    monkeypatch.setattr(Subscriber, "work", counted)
    publisher = Publisher()
    publisher.mute = True
    heard = Hearing(publisher, replay_timeout_s=PATIENCE_S)
    try:
        await publisher.subscribed.wait()
        await until(lambda: publisher.asked)
        before, sent = calls, 20
        for number in range(sent):
            publisher.publish(stored([number], [number, 1, 1, 1]))
            await asyncio.sleep(0.002)
        for _ in range(2000):
            await asyncio.sleep(0)
        assert heard.subscriber.is_busy
        assert calls - before <= 4 * sent
        await heard.close()
    finally:
        heard.subscriber.stop()
        heard.pump.stop()
        heard.context.destroy(linger=0)
        publisher.close()


@scenario
async def test_a_broken_connection_is_no_restart() -> None:
    async with hearing(Publisher()) as heard:
        publisher = heard.publisher
        publisher.publish(stored([1], A))
        await until(lambda: heard.held(*A) == 1)
        heard.subscriber._socket.disconnect(publisher.endpoint)
        publisher.lose(stored([2], B, parent=1))
        heard.subscriber._socket.connect(publisher.endpoint)
        await until(lambda: heard.held(*A, *B) == 2)
        assert (heard.counters.reconnects, heard.counters.drops) == (1, 0)


@scenario
async def test_garbage_is_counted_and_skipped() -> None:
    async with hearing(Publisher(replay=False)) as heard:
        publisher = heard.publisher
        publisher.send(b"kv", b"short", b"")
        publisher.send(b"kv")
        publisher.send(b"kv", (0).to_bytes(8), b"\xc1")
        publisher.seq = 1
        publisher.publish(["BlockStored", 7], ["Surprise"], stored([1], A))
        await until(lambda: heard.held(*A) == 1)
        assert (heard.counters.garbage, heard.counters.unknown) == (4, 1)


@scenario
async def test_after_a_message_that_cannot_be_read_the_known_blocks_are_forgotten() -> None:
    """It may have removed them."""
    async with hearing(Publisher(replay=False)) as heard:
        publisher = heard.publisher
        publisher.publish(stored([1], A))
        await until(lambda: heard.held(*A) == 1)
        publisher.send(b"kv", (1).to_bytes(8), b"\xc1")
        await until(lambda: heard.held(*A) == 0)


@scenario
async def test_frames_beyond_those_of_a_message_are_read_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts: list[int] = []

    def read(frames: list[bytes]) -> Message | None:
        counts.append(len(frames))
        return read_message(frames)

    monkeypatch.setattr(reader, "read_message", read)
    async with hearing(Publisher(replay=False)) as heard:
        heard.publisher.send(b"kv", *[b""] * 1000)
        heard.publisher.publish(stored([1], A))
        await until(lambda: heard.held(*A) == 1)
        assert max(counts) == reader._FRAMES
        assert sum(counts) == 1001 + 3
        assert heard.counters.garbage == len(counts) - 1


@scenario
async def test_only_its_topic_is_received() -> None:
    publisher = Publisher(topic=b"kv@one", replay=False)
    async with hearing(publisher) as heard:
        other = Subscriber(
            zmq,
            heard.context,
            asyncio.get_running_loop(),
            heard.pump,
            heard.index,
            "other",
            Source(publisher.endpoint, None, "kv@two"),
            heard.counters,
        )
        await until(lambda: other.is_connected)
        publisher.publish(stored([1], A))
        await until(lambda: heard.held(*A) == 1)
        assert heard.index.entries("other") == 0
        other.stop()


@scenario
async def test_a_burst_leaves_the_event_loop_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a time limit of 0, each turn of the loop still processes exactly one piece of the
    burst.
    """
    monkeypatch.setattr(reader, "SLICE_S", 0.0)
    most = reader._BLOCKS
    async with hearing(Publisher()) as heard:
        loop = asyncio.get_running_loop()
        publisher = heard.publisher
        sizes = [0]
        ticking = True

        def tick() -> None:
            sizes.append(len(heard.index))
            if ticking:
                loop.call_soon(tick)

        tick()
        blocks = range(5000)
        publisher.publish(stored(list(blocks), [t for n in blocks for t in (n, 1, 1, 1)]))
        publisher.publish(stored(list(range(5000, 6000)), list(range(4000))))
        await until(lambda: len(heard.index) == 6000)
        publisher.publish(removed(list(blocks)))
        await until(lambda: len(heard.index) == 1000)
        steps = [after - before for before, after in pairwise(sizes)]
        assert -min(steps) == most
        publisher.publish(CLEARED)
        await until(lambda: len(heard.index) == 0)
        ticking = False
        steps = [after - before for before, after in pairwise(sizes)]
        assert max(steps) == most
        assert -min(steps) == reader._PURGE
        assert heard.counters.gaps == 0


@scenario
async def test_an_endpoint_that_cannot_be() -> None:
    context = zmq.Context()
    index = ExactIndex()
    loop = asyncio.get_running_loop()
    pump = Pump(loop, index, lambda error: None)
    with pytest.raises(ValueError, match="cannot be connected to"):
        Subscriber(zmq, context, loop, pump, index, "r", Source("tcp://nonsense"), Counters())
    assert "r" not in index
    context.term()  # `term` would hang if a socket were left open


@scenario
async def test_a_publisher_that_is_not_up_yet() -> None:
    publisher = Publisher()
    publisher.kill()
    context = zmq.Context()
    index = ExactIndex()
    loop = asyncio.get_running_loop()
    errors: list[BaseException] = []
    pump = Pump(loop, index, errors.append)
    source = Source(publisher.endpoint, publisher.replay_endpoint)
    subscriber = Subscriber(zmq, context, loop, pump, index, "r", source, Counters())
    try:
        await publisher.restart()
        publisher.publish(stored([1], A))
        await until(lambda: index.entries("r") == 1)
        assert not errors
    finally:
        subscriber.stop()
        pump.stop()
        context.destroy(linger=0)
        publisher.close()
