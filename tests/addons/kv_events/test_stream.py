"""The order of one publisher's messages: single cases, and any loss, restart and replay."""

import pytest
from hypothesis import example, given, settings, strategies as st

from router.addons.kv_events.decode import END_OF_REPLAY, Message
from router.addons.kv_events.stream import Apply, Ask, Begin, Counters, Step, Stream


def message(seq: int, process: int = 0) -> Message:
    return Message(seq, b"%d.%d" % (process, seq), process * 1_000_000 + seq)


END = Message(END_OF_REPLAY, b"", 0)


def brief(steps: list[Step]) -> list[object]:
    """Steps as short values: True or False for Begin, a number for Ask, bytes for Apply."""
    found: list[object] = []
    for step in steps:
        if isinstance(step, Begin):
            found.append(step.complete)
        else:
            found.append(step.start if isinstance(step, Ask) else step.payload)
    return found


def begun(has_replay: bool = False, upto: int = 3) -> tuple[Stream, Counters]:
    counters = Counters()
    stream = Stream(has_replay, counters)
    for seq in range(upto):
        stream.live(message(seq))
    return stream, counters


def test_a_gap_without_replay_drops_everything() -> None:
    stream, counters = begun()
    assert brief(stream.live(message(5))) == [False, b"0.5"]
    assert brief(stream.live(message(6))) == [b"0.6"]
    assert (counters.gaps, counters.drops) == (1, 1)


def test_a_number_that_goes_back_is_a_new_process() -> None:
    stream, counters = begun()
    assert brief(stream.live(message(0, 1))) == [True, b"1.0"]
    assert brief(stream.live(message(1, 1))) == [b"1.1"]
    assert brief(stream.live(message(1, 2))) == [False, b"2.1"]
    assert counters.restarts == 2


def test_a_replay_closes_a_gap() -> None:
    stream, counters = begun(True)
    assert brief(stream.live(message(5))) == [2]
    assert stream.is_replaying
    assert brief(stream.replayed(message(2))) == []  # this proves that it is the same process
    assert [brief(stream.replayed(message(n))) for n in (3, 4, 5, 6)] == [
        [b"0.3"],
        [b"0.4"],
        [b"0.5"],
        [b"0.6"],
    ]
    assert brief(stream.replayed(END)) == []
    assert brief(stream.live(message(6))) == []  # the message already came by replay
    assert brief(stream.live(message(7))) == [b"0.7"]
    assert (counters.gaps, counters.replays, counters.drops) == (1, 1, 0)
    assert counters.duplicates == 2


def ahead() -> tuple[Stream, Counters]:
    """A stream whose last live message was 5, with 6 to 9 from a replay."""
    stream, counters = begun(True)
    stream.live(message(5))
    for seq in range(2, 10):
        stream.replayed(message(seq))
    stream.replayed(END)
    return stream, counters


def test_what_came_by_replay_must_be_what_comes_live() -> None:
    stream, counters = ahead()
    assert brief(stream.live(message(7))) == []  # message 6 was lost, but the replay contained it
    assert brief(stream.live(message(8, 1))) == [False, 0]
    assert counters.restarts == 1


def test_memory_of_a_replay_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.addons.kv_events.stream.OVERLAP", 2)
    stream, counters = ahead()
    assert brief(stream.live(message(6))) == []
    # no proof that it is the same process: begin again
    assert brief(stream.live(message(7))) == [False, 0]
    assert counters.restarts == 1
    # The loop ends, because the waiting message is always among the remembered ones.
    for seq in range(12):
        stream.replayed(message(seq))
    assert brief(stream.replayed(END)) == []
    assert brief(stream.live(message(8))) == []
    assert stream.is_replaying is False


def test_a_replay_that_no_longer_reaches_back_drops_everything() -> None:
    stream, counters = begun(True)
    stream.live(message(9))
    assert brief(stream.replayed(message(7))) == [False, 0]
    assert brief(stream.replayed(message(7))) == [False, b"0.7"]
    stream.replayed(message(8))
    stream.replayed(message(9))
    assert brief(stream.replayed(END)) == []
    assert brief(stream.live(message(10))) == [b"0.10"]
    assert counters.drops == 1


def test_a_replay_that_fails() -> None:
    stream, counters = begun(True)
    stream.live(message(9))
    assert brief(stream.replay_failed()) == [False, False, b"0.9"]
    assert brief(stream.replay_failed()) == []
    assert brief(stream.replayed(message(3))) == []  # the replayed message came too late
    assert brief(stream.live(message(10))) == [b"0.10"]
    assert brief(stream.live(message(12))) == [10]  # a replay of the next gap is requested
    assert (counters.replays, counters.replays_failed) == (2, 1)


def test_a_publisher_that_said_nothing_yet() -> None:
    stream = Stream(True, Counters())
    stream.connected(again=False)
    assert brief(stream.replayed(END)) == [True]
    assert brief(stream.live(message(0))) == [True, b"0.0"]


def test_reconnecting_with_replay_keeps_what_is_proven() -> None:
    stream, _ = begun(True)
    assert brief(stream.connected(again=True)) == [2]
    assert brief(stream.replayed(message(2))) == []
    assert brief(stream.replayed(message(3))) == [b"0.3"]
    # Once more, without waiting for the current replay.
    assert brief(stream.connected(again=True)) == [3]
    assert brief(stream.replayed(message(3))) == []
    assert brief(stream.replayed(END)) == []
    assert brief(stream.live(message(3))) == []
    assert brief(stream.live(message(4))) == [b"0.4"]


def test_a_new_process_that_is_idle_is_seen_when_reconnecting() -> None:
    stream, _ = begun(True)
    assert brief(stream.connected(again=True)) == [2]
    assert brief(stream.replayed(END)) == [False, 0]
    assert brief(stream.replayed(END)) == [True]


class World:
    """Consecutive publisher processes, and a subscriber that follows `Stream`.

    `known` is the subscriber's state: (process, seq) applied since it last began.
    """

    def __init__(self, has_replay: bool, buffer: int) -> None:
        self.stream = Stream(has_replay, Counters())
        self.buffer = buffer
        self.process = self.published = 0
        self.history: list[Message] = []
        self.known: list[tuple[int, int]] = []
        self.complete = False
        self.fails = False

    def restart(self) -> None:
        self.process += 1
        self.history = []

    def publish(self, *, lost: bool) -> None:
        sent = message(len(self.history), self.process)
        self.history.append(sent)
        if not lost:
            self.run(self.stream.live(sent))

    def run(self, steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, Begin):
                self.known, self.complete = [], step.complete
            elif isinstance(step, Apply):
                process, seq = step.payload.split(b".")
                self.known.append((int(process), int(seq)))
            else:
                self.answer(step.start)
        self.check()

    def answer(self, start: int) -> None:
        if self.fails:
            return self.run(self.stream.replay_failed())
        for sent in [*self.history[-self.buffer :], END]:
            if sent.seq >= start:
                steps = self.stream.replayed(sent)
                self.run(steps)
                if any(isinstance(step, Ask) for step in steps):
                    return None  # that answer was the last one of this replay
        return None

    def check(self) -> None:
        """Messages are of one process, without gap or repetition; complete: from the first one."""
        if self.known:
            process, first = self.known[0]
            assert self.known == [(process, first + n) for n in range(len(self.known))]
            assert not self.complete or first == 0


EVENTS = st.lists(
    st.sampled_from(["say", "say", "say", "lose", "lose", "restart", "reconnect", "fail", "mend"]),
    max_size=40,
)


@settings(max_examples=500)
# attempts to close a gap that is already closed
@example(["say", "restart", "lose", "say", "lose"], True, 4)
@given(EVENTS, st.booleans(), st.integers(1, 6))
def test_what_is_known_is_always_one_whole_piece(
    events: list[str], has_replay: bool, buffer: int
) -> None:
    world = World(has_replay, buffer)
    for event in events:
        if event in ("say", "lose"):
            world.publish(lost=event == "lose")
        elif event == "restart":
            world.restart()
            # A connection breaks with its process.
            world.run(world.stream.connected(again=True))
        elif event == "reconnect":
            world.run(world.stream.connected(again=True))
        else:
            world.fails = event == "fail"
        assert not world.stream.is_replaying
    # Once messages arrive again, the subscriber's last message is the publisher's last message.
    world.fails = False
    world.publish(lost=False)
    assert world.known[-1] == (world.process, len(world.history) - 1)
    if has_replay and len(world.history) <= buffer and "fail" not in events:
        assert world.known[0] == (world.process, 0) and world.complete


def test_reconnecting_without_replay_drops_everything() -> None:
    stream, counters = begun()
    assert brief(stream.connected(again=False)) == []
    assert brief(stream.connected(again=True)) == [False]
    assert brief(stream.live(message(4))) == [False, b"0.4"]
    assert counters.reconnects == 1
