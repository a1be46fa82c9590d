"""TGI's behaviour: 200 before validation, errors as events, the end in the last chunk."""

from tests.app.emulator.conftest import SHORT_CHAT, Fleet
from tests.app.emulator.personas.conftest import samples
from tests.app.emulator.test_server import LONG, raw_post
from tests.app.emulator.test_shapes import events

OPTIONS = ("--persona=tgi", "--max-queued-requests=3", "--sse-keep-alive-interval=0.05")


def metrics(fleet: Fleet) -> dict[str, float]:
    return samples(fleet.get("/metrics").text)


def test_a_stream_that_is_refused_is_200_with_an_event(fleet: Fleet) -> None:
    answer = fleet.chat(stream=True, max_tokens=999_999)
    assert answer.status_code == 200
    (_, error), (_, done) = events(answer.content)
    assert error["error"]["http_status_code"] == 422
    assert done == "[DONE]"
    whole = fleet.chat(max_tokens=999_999)
    assert (whole.status_code, whole.json()["error_type"]) == (422, "validation")


def test_overload_is_429_and_in_a_stream_an_event_like_any_other(fleet: Fleet) -> None:
    fleet.faults(freeze=True)
    socks = [raw_post(fleet.url, "/v1/completions", LONG) for _ in range(3)]
    fleet.until(lambda: fleet.state()["waiting"] == 3, "full")
    whole = fleet.chat()
    assert (whole.status_code, whole.json()) == (
        429,
        {"error": "Model is overloaded", "error_type": "overloaded"},
    )
    (_, error), _ = events(fleet.chat(stream=True).content)
    assert error["error"] == {"message": "Model is overloaded", "http_status_code": 422}
    for sock in socks:
        sock.close()


def test_every_chunk_has_the_role_and_the_last_has_the_usage(fleet: Fleet) -> None:
    answer = fleet.chat(stream=True, max_tokens=3, stream_options={"include_usage": True})
    *chunks, (_, done) = events(answer.content)
    assert len(chunks) == 3
    for _, chunk in chunks:
        assert chunk["choices"][0]["delta"]["role"] == "assistant"
        assert chunk["choices"][0]["delta"]["content"]
    assert [chunk["usage"] is None for _, chunk in chunks] == [True, True, False]
    assert chunks[-1][1]["choices"][0]["finish_reason"] == "length"
    assert done == "[DONE]"


def test_a_failure_is_an_event_and_then_done(fleet: Fleet) -> None:
    answer = fleet.post(
        "/v1/chat/completions",
        json={"messages": SHORT_CHAT, "stream": True, "max_tokens": 20},
        headers={"x-emulate-fault": "error_after=3"},
    )
    assert "error" in events(answer.content)[-2][1]


def test_comments_while_nothing_comes(fleet: Fleet) -> None:
    fleet.faults(freeze=True)
    with fleet.http.stream(
        "POST", fleet.url + "/v1/chat/completions", json={"messages": SHORT_CHAT, "stream": True}
    ) as answer:
        lines = answer.iter_lines()
        assert [next(lines) for _ in range(4)] == [":", "", ":", ""]
        assert answer.headers["x-accel-buffering"] == "no"


def test_who_left_is_noticed_at_the_next_token_and_not_before(fleet: Fleet) -> None:
    fleet.faults(freeze=True)
    sock = raw_post(fleet.url, "/v1/completions", LONG)
    fleet.until(lambda: fleet.state()["waiting"] == 1, "queued")
    dropped = 'tgi_request_failure{err="dropped"}'
    before = metrics(fleet).get(dropped, 0)
    sock.close()
    fleet.until(lambda: metrics(fleet).get(dropped, 0) == before + 1, "counted")
    assert fleet.state()["waiting"] == 1
    fleet.faults()
    fleet.until(lambda: fleet.state()["waiting"] + fleet.state()["running"] == 0, "gone")
    assert fleet.state()["generation_tokens"] > 0


def test_a_priority_of_any_kind_is_ignored(fleet: Fleet) -> None:
    assert fleet.chat(priority={"odd": 1}, max_tokens=1).status_code == 200


def test_metrics_are_as_the_rust_exporter_writes_them(fleet: Fleet) -> None:
    fleet.chat(max_tokens=2)
    text = fleet.get("/metrics").text
    assert "\n\n# HELP tgi_batch_current_size Current batch size\n" in text
    assert "\ntgi_batch_max_total_tokens 4096\n" in text
    told = samples(text)
    assert (told["tgi_queue_size"], told["tgi_batch_current_size"]) == (0, 0)
    assert told["tgi_request_success"] >= 1
    assert told['tgi_request_queue_duration_bucket{le="0.00015000000000000001"}'] >= 0


def test_small_endpoints(fleet: Fleet) -> None:
    for path in ("/health", "/ping", "/"):
        assert fleet.get(path).status_code == 200
    info = fleet.get("/info").json()
    assert (info["max_concurrent_requests"], info["max_total_tokens"]) == (3, 2048)
    fleet.faults(health=503)
    assert fleet.get("/health").json() == {
        "error": "unhealthy",
        "error_type": "healthcheck",
    }
    tokens = fleet.post("/tokenize", json={"inputs": "twelve bytes"}).json()
    assert [(row["text"], row["start"], row["stop"]) for row in tokens] == [
        ("twel", 0, 4),
        ("ve b", 4, 8),
        ("ytes", 8, 12),
    ]


def test_a_whole_answer_says_how_long_it_took(fleet: Fleet) -> None:
    headers = fleet.chat(max_tokens=2).headers
    assert float(headers["x-compute-time"]) > 0
    assert int(headers["x-queue-time"]) >= 0
