"""KV events over real ZMQ sockets: published events, replays, and unavailable replays."""

from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
import zmq

from router.lab.emulator.http import text
from tests.app.emulator.conftest import Fleet, checked, started

BLOCK = 16
END = b"\xff" * 8
PROMPT = "tell me of blocks and what they hold " * 4  # 148 characters: 37 tokens, 2 full blocks


@pytest.fixture(scope="module")
def _told() -> Iterator[Fleet]:
    yield from started("--profile=instant", "--kv-events", "--kv-events-topic=kv@{address}@{model}")


class Listener:
    """A SUB socket that receives all events from now on, and its engine."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.context = zmq.Context()
        self.source = fleet.get("/kv_event_sources").json()["0"]
        self.sub = self.context.socket(zmq.SUB)
        self.sub.setsockopt(zmq.SUBSCRIBE, b"")
        self.sub.setsockopt(zmq.RCVTIMEO, 10_000)
        self.sub.connect(self.source["endpoint"].replace("*", "127.0.0.1"))
        self._wait_until_heard()

    def _wait_until_heard(self) -> None:
        """A subscription takes effect after a short delay: send requests until an event arrives."""
        for attempt in range(1000):
            self.complete(f"are you there, {attempt} " + "x" * 80)
            if self.sub.poll(20):
                break
        else:
            raise AssertionError("nothing was ever heard")
        last = int.from_bytes(self.replay(0)[-1][1], "big")
        while int.from_bytes(self.sub.recv_multipart()[1], "big") != last:
            pass

    def complete(self, prompt: str, **body: object) -> dict[str, Any]:
        answer = self.fleet.post(
            "/v1/completions", json={"prompt": prompt, "max_tokens": 1, **body}
        )
        found: dict[str, Any] = answer.json()
        return found

    def batch(self) -> tuple[bytes, int, list[dict[str, Any]]]:
        topic, seq, payload = self.sub.recv_multipart()
        _, events, _ = msgspec.msgpack.decode(payload)
        return topic, int.from_bytes(seq, "big"), events

    def replay(self, start: int) -> list[list[bytes]]:
        """The frames of a replay after the empty frame, without the end marker."""
        dealer = self.context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.RCVTIMEO, 10_000)
        dealer.connect(self.source["replay_endpoint"].replace("*", "127.0.0.1"))
        dealer.send_multipart([b"", start.to_bytes(8, "big")])
        found = []
        while (frames := dealer.recv_multipart())[2] != END:
            assert frames[0] == b""
            found.append(frames[1:])
        assert frames == [b"", b"", END, b""]
        dealer.close(linger=0)
        return found


@pytest.fixture
def listener(_told: Fleet) -> Iterator[Listener]:
    for fleet in checked(_told):
        heard = Listener(fleet)
        yield heard
        heard.sub.close(linger=0)
        heard.context.term()


def test_stored_blocks_have_the_prompts_tokens_and_are_chained(listener: Listener) -> None:
    listener.complete(PROMPT, max_tokens=20, ignore_eos=True, cache_salt="mine")
    topic, seq, (first,) = listener.batch()
    _, following, (second,) = listener.batch()
    address = listener.fleet.url.removeprefix("http://")
    assert topic.decode() == f"kv@{address}@tiny" == listener.source["topic"]
    tokens = text.token_ids(text.pad(PROMPT.encode()))
    assert first["token_ids"] == list(tokens[: 2 * BLOCK])
    assert (first["block_size"], first["parent_block_hash"]) == (BLOCK, None)
    assert (len(first["block_hashes"]), first["extra_keys"]) == (2, [["mine"], None])
    # Decoding fills a third block, which is published separately.
    assert second["token_ids"][:5] == list(tokens[2 * BLOCK :])
    assert second["parent_block_hash"] == first["block_hashes"][-1]
    assert following == seq + 1


def test_reuse_is_told_from_the_first_block_on(listener: Listener) -> None:
    prompt = "the same again " + PROMPT
    listener.complete(prompt)
    _, _, (stored,) = listener.batch()
    listener.complete(prompt)
    _, _, (again,) = listener.batch()
    assert again == stored


def test_what_makes_room_is_told_and_gone(listener: Listener) -> None:
    stored: dict[int, int] = {}
    removed: set[int] = set()
    # The cache has 256 blocks; each prompt takes 125 of them.
    for index in range(4):
        listener.complete(f"prompt {index} " + "many words " * 720)
    while not removed or len(stored) < 4 * 120:
        for event in listener.batch()[2]:
            for value in event["block_hashes"]:
                if event["type"] == "BlockStored":
                    stored[value] = stored.get(value, 0) + 1
                else:
                    assert len(event["block_hashes"]) == 1
                    removed.add(value)
    listener.fleet.until(
        lambda: listener.fleet.state()["kv_blocks_cached"] <= 256, "no more than there are"
    )
    assert listener.fleet.state()["kv_evictions"] >= len(removed)


def test_a_reset_clears_everything(listener: Listener) -> None:
    listener.complete(PROMPT)
    listener.batch()
    listener.fleet.post("/reset_prefix_cache")
    assert listener.batch()[2] == [{"type": "AllBlocksCleared"}]
    answer = listener.complete(PROMPT)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_what_was_missed_can_be_asked_for_from_any_number(listener: Listener) -> None:
    for index in range(3):
        listener.complete(f"missed {index} " + PROMPT)
    batches = [listener.batch() for _ in range(3)]
    everything = listener.replay(0)
    assert [int.from_bytes(seq, "big") for _, seq, _ in everything] == list(range(len(everything)))
    told = [msgspec.msgpack.decode(payload)[1] for _, _, payload in listener.replay(batches[1][1])]
    assert told == [events for _, _, events in batches[1:]]
    assert listener.replay(batches[-1][1] + 1) == []


def test_a_question_that_is_none_is_not_answered_and_harms_nobody(listener: Listener) -> None:
    dealer = listener.context.socket(zmq.DEALER)
    dealer.connect(listener.source["replay_endpoint"].replace("*", "127.0.0.1"))
    for frames in ([b"hello"], [b"", b"short"], [b"", b"", b"", b""], [b"x", b"\0" * 8]):
        dealer.send_multipart(frames)
    assert listener.replay(0)
    assert not dealer.poll(0)
    dealer.close(linger=0)


def test_after_a_restart_the_numbers_begin_again_and_the_past_is_gone(listener: Listener) -> None:
    listener.complete(PROMPT)
    assert listener.batch()[1] > 0
    listener.fleet.post("/emulator/restart")
    assert listener.replay(0) == []
    listener.complete(PROMPT)
    assert listener.batch()[1] == 0


def test_who_does_not_publish_says_so(quick: Fleet) -> None:
    answer = httpx.get(quick.url + "/kv_event_sources")
    assert (answer.status_code, answer.json()) == (200, {})
