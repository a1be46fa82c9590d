"""TensorRT-LLM's behaviour: strict bodies, metrics that are read once, priorities between 0
and 1.
"""

import httpx
import pytest

from tests.app.emulator.conftest import SHORT_CHAT, Fleet, started
from tests.app.emulator.personas.conftest import samples
from tests.app.emulator.test_server import LONG, raw_post
from tests.app.emulator.test_shapes import events

OPTIONS = ("--persona=trtllm",)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", ["cache_salt", "rid", "session_id", "never_heard_of"])
def test_an_unknown_field_is_refused_by_name(fleet: Fleet, name: str, stream: bool) -> None:
    answer = fleet.chat(stream=stream, **{name: "x"})
    assert (answer.status_code, answer.json()["object"]) == (400, "error")
    assert f"'{name}'" in answer.json()["message"]
    assert "Extra inputs are not permitted" in answer.json()["message"]


def test_an_unknown_stream_option_is_refused_too(fleet: Fleet) -> None:
    assert fleet.chat(stream=True, stream_options={"odd": True}).status_code == 400


@pytest.mark.parametrize(
    ("priority", "status"), [(0, 200), (0.5, 200), (1, 200), (1.1, 400), (-1, 400), ("x", 400)]
)
def test_priority_is_within_0_and_1(fleet: Fleet, priority: object, status: int) -> None:
    assert fleet.chat(priority=priority, max_tokens=1).status_code == status


def test_an_older_server_knows_no_priority() -> None:
    for fleet in started("--persona=trtllm", "--engine-version=1.2.1"):
        assert fleet.get("/version").json() == {"version": "1.2.1"}
        answer = fleet.chat(priority=0.5)
        assert answer.status_code == 400
        assert "'priority'" in answer.json()["message"]
        assert fleet.chat(max_tokens=1).status_code == 200


def test_higher_is_sooner_and_the_default_is_in_the_middle(fleet: Fleet) -> None:
    fleet.faults(freeze=True)
    socks = []
    for count, more in enumerate(({"priority": 0.4}, {}, {"priority": 0.6})):
        socks.append(raw_post(fleet.url, "/v1/completions", {**LONG, "stream": True, **more}))
        fleet.until(lambda count=count: fleet.state()["waiting"] == count + 1, "queued")
    fleet.faults()
    fleet.until(lambda: fleet.state()["running"] == 2, "two run")
    for sock in socks[1:]:
        while b'"text"' not in sock.recv(65536):
            pass
    assert fleet.state()["waiting"] == 1
    for sock in socks:
        sock.close()


def test_usage_options_are_on_unless_they_are_off(fleet: Fleet) -> None:
    def usages(options: object) -> list[bool]:
        answer = fleet.chat(stream=True, max_tokens=2, stream_options=options)
        return [
            bool(value.get("usage")) for _, value in events(answer.content) if value != "[DONE]"
        ]

    assert usages({}) == [True, True, True, True]
    assert usages({"continuous_usage_stats": False}) == [False, False, False, True]
    assert usages({"include_usage": False}) == [False, False, False]
    assert usages(None) == [False, False, False]


def test_metrics_are_told_once_and_an_idle_engine_lets_one_wait(fleet: Fleet) -> None:
    fleet.chat(max_tokens=5)
    rows = fleet.get("/metrics").json()
    assert len(rows) >= 5
    assert rows[-1]["kvCacheStats"]["maxNumBlocks"] == 256
    assert rows[-1]["numActiveRequests"] == 0
    assert rows[-1]["iter"] > rows[0]["iter"]
    with pytest.raises(httpx.ReadTimeout):
        fleet.get("/metrics", timeout=0.1)
    assert fleet.get("/metrics").json() == []


def test_gauges_move_only_when_a_request_ends(fleet: Fleet) -> None:
    def running() -> float:
        text = fleet.get("/prometheus/metrics").text
        name = 'trtllm_num_requests_running{engine_type="trtllm",model_name="tiny"}'
        return samples(text)[name]

    fleet.chat(max_tokens=1)
    assert running() == 0
    sock = raw_post(fleet.url, "/v1/completions", LONG)
    fleet.until(lambda: fleet.state()["running"] == 1, "running")
    assert running() == 0
    fleet.chat(max_tokens=1)
    assert running() == 1
    sock.close()


def test_a_stream_that_fails_just_breaks_off(fleet: Fleet) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        fleet.post(
            "/v1/chat/completions",
            json={"messages": SHORT_CHAT, "stream": True, "max_tokens": 20},
            headers={"x-emulate-fault": "error_after=3"},
        )


def test_all_the_kv_is_promised_when_a_request_is_let_in(fleet: Fleet) -> None:
    socks = [raw_post(fleet.url, "/v1/completions", {**LONG, "max_tokens": 2000}) for _ in range(3)]
    fleet.until(lambda: fleet.state()["running"] == 2, "both slots taken")
    rows = fleet.get("/metrics").json()
    assert rows[-1]["kvCacheStats"]["usedNumBlocks"] == 2 * 126
    for sock in socks:
        sock.close()


def test_small_endpoints(fleet: Fleet) -> None:
    for path in ("/health", "/health_generate", "/server_info", "/perf_metrics"):
        assert fleet.get(path).status_code == 200
    assert fleet.get("/perf_metrics").json() == []
    for path in ("/v1/embeddings", "/tokenize"):
        assert fleet.post(path, json={}).status_code == 404
