"""llama.cpp's behaviour: slots, late heads, and a header that prevents an abort on disconnect."""

import math

import httpx
import pytest

from tests.app.emulator.conftest import SHORT_CHAT, Fleet, started
from tests.app.emulator.personas.conftest import samples
from tests.app.emulator.test_server import LONG, raw_post
from tests.app.emulator.test_shapes import events

OPTIONS = ("--persona=llamacpp",)


def test_a_stream_begins_with_the_first_result_and_ends_with_timings(fleet: Fleet) -> None:
    answer = fleet.chat(stream=True, max_tokens=2)
    role, _one, _two, end, (_, done) = events(answer.content)
    assert role[1]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert end[1]["timings"]["predicted_n"] == 2
    assert end[1]["choices"][0]["finish_reason"] == "length"
    assert done == "[DONE]"
    fleet.faults(freeze=True)
    with pytest.raises(httpx.ReadTimeout):
        fleet.post(
            "/v1/chat/completions",
            json={"messages": SHORT_CHAT, "stream": True},
            timeout=0.1,
        )


def test_a_failure_is_an_event_and_no_done(fleet: Fleet) -> None:
    answer = fleet.post(
        "/v1/chat/completions",
        json={"messages": SHORT_CHAT, "stream": True, "max_tokens": 20},
        headers={"x-emulate-fault": "error_after=3"},
    )
    assert events(answer.content)[-1][1]["error"]["type"] == "server_error"


def test_errors_and_a_body_that_is_not_json(fleet: Fleet) -> None:
    assert fleet.chat(max_tokens=0).json()["error"]["type"] == "invalid_request_error"
    broken = fleet.post("/v1/chat/completions", content=b"{")
    assert (broken.status_code, broken.json()["error"]["code"]) == (500, 500)


def test_who_left_is_noticed_within_a_second(fleet: Fleet) -> None:
    sock = raw_post(fleet.url, "/v1/completions", {**LONG, "stream": True})
    assert sock.recv(1)
    sock.close()
    fleet.until(lambda: fleet.state()["running"] == 0, "gone")
    assert fleet.state()["aborted"] > 0


def test_with_a_conversation_id_it_goes_on_and_even_deleting_does_not_stop_it(
    fleet: Fleet,
) -> None:
    aborted, served = fleet.state()["aborted"], fleet.state()["served"]
    body = {"prompt": "go on", "max_tokens": 100, "ignore_eos": True, "stream": True}
    sock = raw_post(fleet.url, "/v1/completions", body, "x-conversation-id: c1")
    assert sock.recv(1)
    sock.close()
    gone = fleet.http.delete(fleet.url + "/v1/stream?conv_id=c1")
    assert gone.status_code == 204
    fleet.until(lambda: fleet.state()["served"] == served + 1, "made to its end")
    assert fleet.state()["aborted"] == aborted


def test_slots_and_props(fleet: Fleet) -> None:
    assert fleet.get("/props").json()["total_slots"] == 2
    sock = raw_post(fleet.url, "/v1/completions", LONG)
    fleet.until(lambda: fleet.state()["running"] == 1, "running")
    slots = fleet.get("/slots").json()
    assert [slot["is_processing"] for slot in slots] == [True, False]
    path = "/slots?fail_on_no_slot=1"
    assert fleet.get(path).status_code == 200
    other = raw_post(fleet.url, "/v1/completions", LONG)
    fleet.until(lambda: fleet.state()["running"] == 2, "both slots taken")
    assert fleet.get(path).status_code == 503
    for one in (sock, other):
        one.close()


def test_metrics_without_labels_and_nan_before_anything_was_measured() -> None:
    for fleet in started("--persona=llamacpp"):
        told = samples(fleet.get("/metrics").text)
        assert math.isnan(told["llamacpp:predicted_tokens_seconds"])
        assert told["llamacpp:requests_processing"] == 0
        fleet.chat(max_tokens=5)
        told = samples(fleet.get("/metrics").text)
        assert told["llamacpp:tokens_predicted_total"] == 5
        assert told["llamacpp:predicted_tokens_seconds"] > 0
        assert told["llamacpp:n_tokens_max"] > 0


def test_metrics_have_to_be_asked_for() -> None:
    for fleet in started("--persona=llamacpp", "--no-metrics"):
        answer = fleet.get("/metrics")
        assert (answer.status_code, answer.json()["error"]["type"]) == (501, "not_supported_error")


def test_tokens_and_health(fleet: Fleet) -> None:
    answer = fleet.post("/tokenize", json={"content": "twelve bytes"})
    assert len(answer.json()["tokens"]) == 3
    assert fleet.get("/health").json() == {"status": "ok"}
    fleet.faults(health=503)
    error = fleet.get("/v1/health").json()["error"]
    assert (error["code"], error["type"]) == (503, "unavailable_error")
