"""Faults over real sockets: the effects at the client of a failing engine."""

import httpx
import pytest

from tests.app.emulator.conftest import Fleet
from tests.app.emulator.test_server import LONG, raw_post

STREAM = {"prompt": "go on", "max_tokens": 20, "stream": True}
CHAT_STREAM = {
    "messages": [{"role": "user", "content": "go on"}],
    "max_tokens": 20,
    "stream": True,
}


def fault(text: str) -> dict[str, str]:
    return {"x-emulate-fault": text}


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings"])
def test_a_reset_instead_of_an_answer(fleet: Fleet, path: str) -> None:
    sock = raw_post(fleet.url, path, {"prompt": "a", "input": "a"}, "x-emulate-fault: reset")
    with sock, pytest.raises(ConnectionResetError):
        sock.recv(1000)


@pytest.mark.parametrize("status", [500, 503, 429])
def test_an_error_and_how_long_to_wait(fleet: Fleet, status: int) -> None:
    answer = fleet.post(
        "/v1/completions",
        json=STREAM,
        headers=fault(f"status={status}; retry_after_s=3"),
    )
    assert (answer.status_code, answer.headers["retry-after"]) == (status, "3")
    assert answer.json()["error"]["code"] == status
    assert answer.headers["x-emulated-replica"] == "emulated-0"


def test_a_header_may_concern_one_replica_only(fleet: Fleet) -> None:
    headers = fault("status=500; replica=emulated-0")
    statuses = [
        fleet.http.post(
            url + "/v1/completions", json={**STREAM, "max_tokens": 1}, headers=headers
        ).status_code
        for url in fleet.urls
    ]
    assert statuses == [500, 200]


def test_a_hanging_request_has_its_head_and_nothing_else(fleet: Fleet) -> None:
    with fleet.http.stream(
        "POST", fleet.url + "/v1/completions", json=STREAM, headers=fault("hang"), timeout=0.1
    ) as answer:
        assert answer.status_code == 200
        with pytest.raises(httpx.ReadTimeout):
            answer.read()
    assert fleet.state()["running"] == 0


def test_a_slow_head(fleet: Fleet) -> None:
    with pytest.raises(httpx.ReadTimeout):
        fleet.post("/v1/completions", json=STREAM, headers=fault("delay_s=30"), timeout=0.1)


@pytest.mark.parametrize("tokens", [0, 3, 20])
def test_a_stream_that_dies(fleet: Fleet, tokens: int) -> None:
    lines = []
    with (
        fleet.http.stream(
            "POST",
            fleet.url + "/v1/chat/completions",
            json=CHAT_STREAM,
            headers=fault(f"die_after={tokens}"),
        ) as answer,
        pytest.raises(httpx.RemoteProtocolError, match="incomplete"),
    ):
        for line in answer.iter_lines():
            lines += [line]
    data = [line for line in lines if line]
    assert len(data) == (tokens + 1 if tokens else 0)  # the role chunk, then one chunk per token
    assert "data: [DONE]" not in data


def test_a_whole_answer_that_dies(fleet: Fleet) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        fleet.post("/v1/completions", json={"prompt": "a"}, headers=fault("die_after=3"))


def test_an_error_in_the_middle_of_a_stream_and_done_all_the_same(fleet: Fleet) -> None:
    answer = fleet.post("/v1/completions", json=STREAM, headers=fault("error_after=3"))
    events = answer.text.strip().split("\n\n")
    assert len(events) == 5
    assert '"error"' in events[3]
    assert events[4] == "data: [DONE]"


@pytest.mark.parametrize(
    ("path", "body", "last"),
    [
        ("/v1/messages", {**CHAT_STREAM}, "event: error"),
        ("/v1/responses", {"input": "a", "stream": True}, "event: response.failed"),
    ],
)
def test_other_routes_have_errors_of_their_own(
    fleet: Fleet, path: str, body: dict[str, object], last: str
) -> None:
    answer = fleet.post(path, json=body, headers=fault("error_after=2"))
    assert answer.text.strip().split("\n\n")[-1].startswith(last)


def test_a_whole_answer_that_fails(fleet: Fleet) -> None:
    answer = fleet.post("/v1/completions", json={"prompt": "a"}, headers=fault("error_after=0"))
    assert answer.status_code == 500


def test_a_frozen_engine_looks_healthy_and_thaws(fleet: Fleet) -> None:
    fleet.faults(freeze=True)
    with fleet.http.stream("POST", fleet.url + "/v1/completions", json=STREAM) as answer:
        assert answer.status_code == 200
        assert fleet.get("/health").status_code == 200
        fleet.faults()
        assert answer.read().endswith(b"data: [DONE]\n\n")


def test_leaving_a_frozen_engine_frees_it(fleet: Fleet) -> None:
    fleet.faults(freeze=True)
    sock = raw_post(fleet.url, "/v1/completions", LONG)
    fleet.until(lambda: fleet.state()["waiting"] == 1, "queued")
    sock.close()
    fleet.until(lambda: fleet.state()["waiting"] == 0, "gone")


def test_an_unhealthy_engine(fleet: Fleet) -> None:
    fleet.faults(health=503)
    assert fleet.get("/health").status_code == 503


def test_a_straggler_still_answers(fleet: Fleet) -> None:
    assert fleet.faults(slow=3.0).json()["slow"] == 3.0
    answer = fleet.post("/v1/completions", json={"prompt": "a", "max_tokens": 2})
    assert answer.status_code == 200
    assert fleet.get("/emulator/faults").json()["slow"] == 3.0


@pytest.mark.parametrize("stream", [False, True])
def test_an_attempt_that_straggles_comes_to_the_queue_late(fleet: Fleet, stream: bool) -> None:
    before, asked = fleet.state()["submitted"], fleet.state()["asked"]
    body = {**STREAM, "stream": stream}
    sock = raw_post(fleet.url, "/v1/completions", body, "x-emulate-fault: straggle=1e6")
    if stream:
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")
    answer = fleet.post(
        "/v1/completions", json=body, headers=fault("straggle=2; replica=emulated-0")
    )
    assert answer.status_code == 200
    assert fleet.state()["submitted"] == before + 1  # the first request is still on its way
    fleet.until(lambda: fleet.state()["asked"] == asked + 2, "both are counted as asked")
    assert fleet.state()["asked_tokens"] >= 2
    sock.close()


def test_embeddings_straggle_too(fleet: Fleet) -> None:
    before = fleet.state()["submitted"]
    sock = raw_post(fleet.url, "/v1/embeddings", {"input": "a"}, "x-emulate-fault: straggle=1e6")
    answer = fleet.post("/v1/embeddings", json={"input": "a"})
    assert answer.status_code == 200
    assert fleet.state()["submitted"] == before + 1
    sock.close()


def test_faults_that_are_not_understood_change_nothing(fleet: Fleet) -> None:
    assert fleet.faults(hangs=True).status_code == 400
    header = fleet.post("/v1/completions", json={"prompt": "a"}, headers=fault("nonsense"))
    assert header.status_code == 400
    answer = fleet.post("/v1/completions", json={"prompt": "a", "max_tokens": 1})
    assert answer.status_code == 200
