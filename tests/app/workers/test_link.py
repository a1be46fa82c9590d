"""Frames between the parent and a worker."""

import socket

from router.app.workers import link as links
from router.app.workers.frames import Answer, Ask, Frame, Order, Present, Told, encoded
from router.app.workers.link import Link
from tests.harness.replica import eventually
from tests.harness.running import scenario

FRAMES: list[Frame] = [
    *(Told(b"x" * 100_000), Ask(1, 2, "replicas", ()), Ask(0, 3, "set_duty", ("r0", "drain"))),
    *(Answer(1, 2, [{"id": "a", "ttft": None}], ""), Answer(1, 2, None, "no")),
    *(Order("stop"), Order("replaced", ("listen",)), Present(3)),
]


async def pair() -> tuple[Link, Link, list[Frame], list[str]]:
    one, other = socket.socketpair()
    heard: list[Frame] = []
    ended: list[str] = []
    sender = Link(heard.append, lambda: ended.append("sender"))
    receiver = Link(heard.append, lambda: ended.append("receiver"))
    await sender.open(one)
    await receiver.open(other)
    return sender, receiver, heard, ended


@scenario
async def test_frames_arrive_in_order_however_they_are_cut() -> None:
    sender, receiver, heard, ended = await pair()
    for frame in FRAMES:
        assert sender.send(frame)
    await eventually(lambda: len(heard) == len(FRAMES), "all frames")
    assert heard == FRAMES
    heard.clear()
    for byte in b"".join(encoded(frame) for frame in FRAMES[1:]):
        receiver.data_received(bytes([byte]))
    assert heard == FRAMES[1:]
    sender.close()
    await eventually(lambda: sorted(ended) == ["receiver", "sender"], "the end")
    assert not sender.send(Present(1))


@scenario
async def test_garbage_ends_the_connection() -> None:
    for data in (b"\xff" * 8, (5).to_bytes(4, "big") + b"hello"):
        sender, _, heard, ended = await pair()
        sender.send_encoded(data)
        await eventually(lambda ended=ended: len(ended) == 2, "the end")
        assert heard == []


@scenario
async def test_a_process_that_does_not_read_costs_bounded_memory() -> None:
    sender, receiver, _, ended = await pair()
    assert receiver._transport is not None
    receiver._transport.pause_reading()
    frame = Told(bytes(1_000_000))
    sent = 0
    while sender.send(frame):
        sent += 1
    assert sent <= links.MOST_WAITING / 1_000_000 + 3
    assert sender.send(Order("stop")) and sender.send(Present(1))  # Nobody says these again.
    receiver._transport.resume_reading()
    for each in (sender, receiver):
        each.close()
    await eventually(lambda: len(ended) == 2, "the end")
