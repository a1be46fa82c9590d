"""SGLang's behaviour: late heads, higher priority first, aborts by prefix, health that
generates.
"""

import httpx
import pytest

from tests.app.emulator.conftest import SHORT_CHAT, Fleet
from tests.app.emulator.personas.conftest import samples
from tests.app.emulator.test_server import LONG, raw_post
from tests.app.emulator.test_shapes import events

OPTIONS = ("--persona=sglang",)


def test_a_head_comes_with_the_first_token_and_errors_before_it_are_errors(fleet: Fleet) -> None:
    fleet.faults(freeze=True)
    with (
        pytest.raises(httpx.ReadTimeout),
        fleet.http.stream(
            "POST",
            fleet.url + "/v1/chat/completions",
            json={"messages": SHORT_CHAT, "stream": True, "rid": "late"},
            timeout=0.1,
        ),
    ):
        pass
    # SGLang checks for disconnected clients only from time to time
    assert fleet.state()["waiting"] == 1
    fleet.post("/abort_request", json={"abort_all": True})


def test_a_stream_says_role_text_end_and_usage_apart(fleet: Fleet) -> None:
    answer = fleet.chat(stream=True, max_tokens=3, stream_options={"include_usage": True})
    role, one, two, three, end, usage, (_, done) = events(answer.content)
    assert role[1]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    for chunk in (one, two, three):
        assert len(chunk[1]["choices"][0]["delta"]["content"]) == 4
        assert chunk[1]["usage"] is None
    assert end[1]["choices"][0]["delta"] == {}
    assert end[1]["choices"][0]["finish_reason"] == "length"
    assert (usage[1]["choices"], usage[1]["usage"]["completion_tokens"]) == ([], 3)
    assert done == "[DONE]"


@pytest.mark.parametrize(
    ("body", "status"),
    [({"model": "nope"}, 404), ({"priority": 0.5}, 400), ({"priority": 2**63}, 400)],
)
def test_errors_are_flat(fleet: Fleet, body: dict[str, object], status: int) -> None:
    answer = fleet.chat(**body)
    assert answer.status_code == status
    assert (answer.json()["object"], answer.json()["code"]) == ("error", status)


def test_higher_is_sooner_none_is_last_and_ten_more_is_not_enough_to_displace(
    fleet: Fleet,
) -> None:
    holding = [
        raw_post(fleet.url, "/v1/completions", {**LONG, "priority": priority, "stream": True})
        for priority in (5, 0)
    ]
    fleet.until(lambda: fleet.state()["running"] == 2, "both slots taken")
    for priority in (None, 1, 10):
        body = {**LONG, "stream": True, "rid": f"p{priority}"}
        if priority is not None:
            body["priority"] = priority
        holding.append(raw_post(fleet.url, "/v1/completions", body))
    fleet.until(lambda: fleet.state()["waiting"] == 3, "three wait")
    assert fleet.state()["preemptions"] == 0
    queued = samples(fleet.get("/metrics").text)
    name = (
        'sglang:num_queue_reqs{{engine_type="unified",model_name="tiny",moe_ep_rank="0",'
        'pp_rank="0",priority="{}",tp_rank="0"}}'
    )
    told = [queued[name.format(priority)] for priority in ("", "1", "10", str(-(2**63)))]
    assert told == [3, 1, 1, 1]
    # This priority is higher by eleven than the lowest running one, whose request is preempted and
    # resumes first.
    holding.append(raw_post(fleet.url, "/v1/completions", {**LONG, "priority": 11}))
    fleet.until(lambda: fleet.state()["preemptions"] == 1, "one displaced")
    fleet.post("/abort_request", json={"abort_all": True})
    for sock in holding:
        sock.close()


def test_an_abort_matches_prefixes_and_ends_the_answer(fleet: Fleet) -> None:
    fleet.faults(freeze=True)
    socks = [
        raw_post(fleet.url, "/v1/completions", {**LONG, "rid": rid}, "connection: close")
        for rid in ("job-1", "job-12", "other")
    ]
    fleet.until(lambda: fleet.state()["waiting"] == 3, "all queued")
    fleet.post("/abort_request", json={"rid": "job-1"})
    fleet.until(lambda: fleet.state()["waiting"] == 1, "two ended")
    for sock in socks[:2]:
        assert b'"finish_reason":"abort"' in sock.recv(65536)
    fleet.post("/abort_request", json={"rid": ""})
    assert fleet.state()["waiting"] == 1
    fleet.post("/abort_request", json={"rid": "other"})
    for sock in socks:
        sock.close()


def test_a_stream_that_is_aborted_has_an_end(fleet: Fleet) -> None:
    with fleet.http.stream(
        "POST",
        fleet.url + "/v1/chat/completions",
        json={
            "messages": SHORT_CHAT,
            "stream": True,
            "max_tokens": 1500,
            "ignore_eos": True,
            "rid": "x",
        },
    ) as answer:
        fleet.post("/abort_request", json={"rid": "x"})
        told = events(answer.read())
    assert told[-2][1]["choices"][0]["finish_reason"] == "abort"
    assert told[-1][1] == "[DONE]"


def test_leaving_is_noticed_late_with_a_stream_and_at_the_next_token_without(
    fleet: Fleet,
) -> None:
    streaming = raw_post(fleet.url, "/v1/completions", {**LONG, "stream": True})
    assert streaming.recv(1)
    streaming.close()
    whole = raw_post(fleet.url, "/v1/completions", LONG)
    fleet.until(lambda: fleet.state()["running"] == 2, "both run")
    whole.close()
    fleet.until(lambda: fleet.state()["running"] == 1, "the whole answer is gone")
    fleet.until(lambda: fleet.state()["running"] == 0, "the stream is gone")


def test_an_engine_that_dies_before_the_first_token_sends_no_head(fleet: Fleet) -> None:
    fleet.faults(freeze=True)
    sock = raw_post(fleet.url, "/v1/completions", {**LONG, "stream": True})
    fleet.until(lambda: fleet.state()["waiting"] == 1, "queued")
    fleet.post("/emulator/restart")
    with sock:
        assert sock.recv(1000) == b""


def test_health_generates_and_ready_does_not(fleet: Fleet) -> None:
    made = fleet.state()["generation_tokens"]
    assert fleet.get("/ready").status_code == 200
    assert fleet.state()["generation_tokens"] == made
    assert fleet.get("/health").status_code == 200
    assert fleet.state()["generation_tokens"] == made + 1
    fleet.faults(freeze=True)
    assert fleet.get("/ready").status_code == 200
    with pytest.raises(httpx.ReadTimeout):
        fleet.get("/health", timeout=0.1)


def test_loads_and_server_info(fleet: Fleet) -> None:
    fleet.faults(freeze=True)
    sock = raw_post(fleet.url, "/v1/completions", {**LONG, "rid": "waits"})
    fleet.until(lambda: fleet.state()["waiting"] == 1, "queued")
    (load,) = fleet.get("/v1/loads?include=core").json()["loads"]
    assert (load["num_running_reqs"], load["num_waiting_reqs"]) == (0, 1)
    assert load["num_waiting_uncached_tokens"] == 2
    assert load["max_total_num_tokens"] == 4096
    info = fleet.get("/server_info").json()
    assert (info["version"], info["page_size"], info["max_running_requests"]) == ("0.5.23", 16, 2)
    assert fleet.get("/get_load").status_code == 404
    fleet.post("/abort_request", json={"abort_all": True})
    sock.close()


def test_metrics_have_the_engines_own_names(fleet: Fleet) -> None:
    fleet.chat(max_tokens=2)
    told = samples(fleet.get("/metrics").text)
    where = (
        '{engine_type="unified",model_name="tiny",moe_ep_rank="0",pp_rank="0",priority="",'
        'tp_rank="0"}'
    )
    for name, value in (
        ("num_running_reqs", 0),
        ("num_queue_reqs", 0),
        ("token_usage", 0),
        ("max_total_num_tokens", 4096),
        ("page_size", 16),
        ("num_pages", 256),
    ):
        assert told[f"sglang:{name}{where}"] == value
    prefix = '{engine_type="unified",model_name="tiny",priority=""}'
    assert told[f"sglang:prompt_tokens_total{prefix}"] > 0
