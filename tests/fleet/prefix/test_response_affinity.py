"""Holders of stored responses: found in the engines' answers, the oldest are evicted first."""

import pytest

from router.fleet.prefix.response_affinity import ResponseAffinity, response_id
from tests.harness.reading import read_response
from tests.places import DATA

RECORDING = DATA / "vllm-0.32" / "responses_stream.http"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"id":"resp_1","object":"response"}', "resp_1"),
        (b'{"created_at": 1, "id" : "resp_a-B_9"}', "resp_a-B_9"),
        (b'event: response.created\ndata: {"response":{"id":"resp_x"}}\n\n', "resp_x"),
        (b'{"id":"msg_1","response":{"id":"resp_2"}}', "resp_2"),
        (b'{"id":"chatcmpl-1"}', None),
        (b'{"id":"resp_"}', None),
        (b'{"id":"resp_a b"}', None),
        (b'{"id":"resp_' + b"x" * 200 + b'"}', None),
        (b" " * 5000 + b'{"id":"resp_1"}', None),
        (b"", None),
    ],
)
def test_the_id_of_a_stored_response(data: bytes, found: str | None) -> None:
    assert response_id(data) == found


def test_the_id_in_a_recorded_stream() -> None:
    recorded = read_response(RECORDING.read_bytes())
    assert recorded is not None
    assert (response_id(bytes(recorded.body)) or "").startswith("resp_")


def test_the_least_recently_used_is_forgotten() -> None:
    owners = ResponseAffinity(3)
    for n in range(3):
        owners.learn(f"resp_{n}", f"r{n}")
    assert owners.find("resp_0") == "r0"
    owners.learn("resp_3", "r3")
    assert owners.find("resp_1") is None
    assert [owners.find(f"resp_{n}") for n in (0, 2, 3)] == ["r0", "r2", "r3"]
    owners.learn("resp_0", "elsewhere")
    assert owners.find("resp_0") == "elsewhere"
    assert len(owners) == 3


def test_an_id_stays_its_partys() -> None:
    owners = ResponseAffinity(2)
    assert owners.learn("resp_1", "a", "acme")
    for party in ("", "umbrella"):
        assert not owners.learn("resp_1", "b", party)
    assert owners.find("resp_1", "acme") == "a"
    assert owners.learn("resp_1", "c", "acme")
    assert owners.find("resp_1", "acme") == "c"
    assert owners.learn("resp_2", "a")  # stored without an owner
    assert not owners.learn("resp_2", "b", "acme")
    assert owners.find("resp_2") == "a"
    owners.learn("resp_3", "a", "acme")
    assert owners.learn("resp_1", "b", "umbrella")  # the entry was evicted in the meantime
    owners.shown("resp_1", "c")
    assert owners.find("resp_1", "umbrella") == "b"
    owners.shown("resp_4", "c")
    assert owners.find("resp_4", "acme") == "c"
