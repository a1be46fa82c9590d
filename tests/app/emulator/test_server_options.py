"""vLLM's API beyond one plain answer: choices, stop strings, continuation, load, pooling."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.app.emulator.conftest import Fleet, started
from tests.app.emulator.test_server import CHAT, LONG, raw_post, read_all
from tests.app.emulator.test_shapes import events, recorded, unknown_fields


def post(fleet: Fleet, path: str, body: object, **headers: str) -> httpx.Response:
    return fleet.post(path, json=body, headers=headers)


def text_of(answer: httpx.Response) -> str:
    choice = answer.json()["choices"][0]
    found: str = choice["message"]["content"] if "message" in choice else choice["text"]
    return found


# Choices.


def test_choices_are_streamed_side_by_side_and_add_up(quick: Fleet) -> None:
    body = {"messages": CHAT, "n": 3, "max_tokens": 5, "ignore_eos": True}
    whole = post(quick, "/v1/chat/completions", body).json()
    wanted = [choice["message"]["content"] for choice in whole["choices"]]
    assert len(set(wanted)) == 3
    assert whole["usage"]["completion_tokens"] == 15
    options = {"include_usage": True}
    stream = post(
        quick, "/v1/chat/completions", {**body, "stream": True, "stream_options": options}
    )
    got, ends, roles = ["", "", ""], [0, 0, 0], [0, 0, 0]
    *chunks, (_, usage), (_, done) = events(stream.content)
    for _, chunk in chunks:
        (choice,) = chunk["choices"]
        got[choice["index"]] += choice["delta"]["content"]
        ends[choice["index"]] += choice["finish_reason"] == "length"
        roles[choice["index"]] += "role" in choice["delta"]
    assert (got, ends, roles, done) == (wanted, [1, 1, 1], [1, 1, 1], "[DONE]")
    assert usage["usage"]["completion_tokens"] == 15


def test_completions_have_choices_too(quick: Fleet) -> None:
    body = {"prompt": "a", "n": 2, "max_tokens": 3, "ignore_eos": True}
    whole = post(quick, "/v1/completions", body).json()["choices"]
    stream = post(quick, "/v1/completions", {**body, "stream": True})
    got = ["", ""]
    for _, chunk in events(stream.content)[:-1]:
        got[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
    assert got == [choice["text"] for choice in whole]


def test_who_leaves_takes_all_choices_along(fleet: Fleet) -> None:
    sock = raw_post(fleet.url, "/v1/completions", {**LONG, "n": 4})
    fleet.until(lambda: fleet.state()["running"] + fleet.state()["waiting"] == 4, "four came")
    sock.close()
    fleet.until(lambda: fleet.state()["running"] + fleet.state()["waiting"] == 0, "all gone")


# Stop strings.


@pytest.mark.parametrize("stream", [True, False])
def test_a_stop_string_ends_the_answer_and_is_not_in_it(quick: Fleet, stream: bool) -> None:
    body: dict[str, Any] = {"messages": CHAT, "max_tokens": 100, "ignore_eos": True}
    unstopped = text_of(post(quick, "/v1/chat/completions", body))
    at = unstopped.index(". ")
    answer = post(
        quick, "/v1/chat/completions", {**body, "stop": ["never", ". "], "stream": stream}
    )
    if stream:
        *chunks, _ = events(answer.content)
        text = "".join(chunk["choices"][0]["delta"]["content"] for _, chunk in chunks)
        last = chunks[-1][1]["choices"][0]
    else:
        text, last = text_of(answer), answer.json()["choices"][0]
        # Whole tokens are generated, and the stop string is part of the output.
        assert answer.json()["usage"]["completion_tokens"] == -(-(at + 2) // 4)
    assert text == unstopped[:at]
    assert (last["finish_reason"], last["stop_reason"]) == ("stop", ". ")


def test_a_stop_string_may_stay_and_comes_not_too_early(quick: Fleet) -> None:
    body: dict[str, Any] = {"prompt": "a", "max_tokens": 100, "ignore_eos": True, "stop": ". "}
    kept = post(quick, "/v1/completions", {**body, "include_stop_str_in_output": True})
    assert text_of(kept).endswith(". ")
    assert text_of(kept).count(". ") == 1
    later = post(quick, "/v1/completions", {**body, "min_tokens": 40})
    assert later.json()["usage"]["completion_tokens"] >= 40
    assert later.json()["choices"][0]["finish_reason"] == "stop"


# Continuation.


@pytest.mark.parametrize("done", [1, 10, 33, 59])
def test_a_broken_chat_is_continued_exactly(quick: Fleet, done: int) -> None:
    body = {"messages": CHAT, "max_tokens": 60, "ignore_eos": True}
    whole = text_of(post(quick, "/v1/chat/completions", body))
    begun = {"role": "assistant", "content": whole[: done * 4]}
    rest = {
        "messages": [*CHAT, begun],
        "max_tokens": 60 - done,
        "ignore_eos": True,
        "continue_final_message": True,
        "add_generation_prompt": False,
    }
    assert text_of(post(quick, "/v1/chat/completions", rest)) == whole[done * 4 :]


@pytest.mark.parametrize("done", [3, 15, 30])
def test_a_broken_completion_is_continued_exactly_to_its_natural_end(
    quick: Fleet, done: int
) -> None:
    first = post(quick, "/v1/completions", {"prompt": "once ", "max_tokens": 1000})
    assert first.json()["choices"][0]["finish_reason"] == "stop"
    whole = text_of(first)
    # "once " has five bytes: two tokens, the second padded with spaces.
    body = {"prompt": "once    " + whole[: done * 4], "max_tokens": 1000 - done}
    rest = post(quick, "/v1/completions", body)
    assert text_of(rest) == whole[done * 4 :]
    assert rest.json()["choices"][0]["finish_reason"] == "stop"


def test_both_ways_to_end_a_prompt_at_once_are_refused(quick: Fleet) -> None:
    body = {"messages": CHAT, "continue_final_message": True}
    assert post(quick, "/v1/chat/completions", body).status_code == 400


# Load and state.


def test_the_load_report_comes_with_whole_answers_that_ask_for_it(quick: Fleet) -> None:
    body = {"prompt": "a", "max_tokens": 1}
    asked = {"endpoint-load-metrics-format": "JSON"}
    headers, _ = recorded("completion_orca_header.http")
    ours = post(quick, "/v1/completions", body, **asked).headers["endpoint-load-metrics"]
    assert ours == headers["endpoint-load-metrics"]
    assert json.loads(ours.removeprefix("JSON "))["named_metrics"]["num_requests_waiting"] == 0
    asked = {"endpoint-load-metrics-format": "text"}
    told = post(quick, "/v1/completions", body, **asked).headers["endpoint-load-metrics"]
    assert told == (
        "TEXT named_metrics.num_requests_waiting=0.0, named_metrics.kv_cache_usage_perc=0.0"
    )
    for unasked in (
        post(quick, "/v1/completions", body),
        post(quick, "/v1/completions", {**body, "stream": True}, **asked),
    ):
        assert "endpoint-load-metrics" not in unasked.headers


def test_a_fraction_as_priority_is_refused_in_vllms_words(quick: Fleet) -> None:
    _, theirs = recorded("error_float_priority.http")
    ours = post(quick, "/v1/chat/completions", {"messages": CHAT, "priority": 0.5})
    assert ours.json() == json.loads(theirs)


def test_an_engine_that_sleeps_says_so_and_works_when_it_is_woken(fleet: Fleet) -> None:
    def awake() -> float:
        return fleet.metric(
            'vllm:engine_sleep_state{engine="0",model_name="tiny",sleep_state="awake"}'
        )

    assert awake() == 1
    post(fleet, "/sleep?level=1", {})
    assert awake() == 0
    offloaded = (
        'vllm:engine_sleep_state{engine="0",model_name="tiny",sleep_state="weights_offloaded"}'
    )
    assert fleet.metric(offloaded) == 1
    assert fleet.get("/is_sleeping").json() == {"is_sleeping": True}
    sock = raw_post(
        fleet.url, "/v1/completions", {"prompt": "a", "max_tokens": 1}, "connection: close"
    )
    fleet.until(lambda: fleet.state()["waiting"] == 1, "queued")
    post(fleet, "/wake_up", {})
    assert b'"finish_reason":"length"' in read_all(sock)
    assert awake() == 1


def test_requests_are_aborted_by_id(fleet: Fleet) -> None:
    fleet.faults(freeze=True)
    named = "x-request-id: mine"
    sock = raw_post(fleet.url, "/v1/completions", LONG, named, "connection: close")
    fleet.until(lambda: fleet.state()["waiting"] == 1, "queued")
    post(fleet, "/abort_requests", {"request_ids": ["cmpl-min"]})
    assert fleet.state()["waiting"] == 1
    post(fleet, "/abort_requests", {"request_ids": ["cmpl-mine"]})
    assert b'"finish_reason":"abort"' in read_all(sock)


def test_a_restart_breaks_off_what_runs_and_forgets_everything(fleet: Fleet) -> None:
    post(fleet, "/v1/completions", {"prompt": "remember this " * 20, "max_tokens": 1})
    assert fleet.state()["kv_blocks_cached"] > 0
    sock = raw_post(fleet.url, "/v1/completions", LONG)
    fleet.until(lambda: fleet.state()["running"] == 1, "running")
    assert post(fleet, "/emulator/restart", {}).json() == {"lost": 1}
    assert read_all(sock) == b""
    state = fleet.state()
    assert (state["kv_blocks_cached"], state["served"], state["prompt_tokens"]) == (0, 0, 0)
    assert fleet.metric("vllm:prompt_tokens_total") == 0
    assert post(fleet, "/v1/completions", {"prompt": "a", "max_tokens": 1}).status_code == 200


# Pooling.


def test_scores_for_one_against_many_and_pairs(quick: Fleet) -> None:
    one = post(quick, "/v1/score", {"text_1": "q", "text_2": ["a", "b"]}).json()
    assert [row["index"] for row in one["data"]] == [0, 1]
    assert all(0 <= row["score"] <= 1 for row in one["data"])
    pairs = post(quick, "/score", {"text_1": ["q", "q"], "text_2": ["a", "b"]}).json()
    assert pairs["data"] == one["data"]
    odd = post(quick, "/v1/score", {"text_1": ["q", "q"], "text_2": ["a", "b", "c"]})
    assert odd.status_code == 400


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_a_rerank_is_sorted_and_may_be_cut(quick: Fleet, path: str) -> None:
    body = {"query": "q", "documents": ["a", "b", "c"]}
    whole = post(quick, path, body).json()["results"]
    scores = [row["relevance_score"] for row in whole]
    assert scores == sorted(scores, reverse=True)
    assert sorted(row["index"] for row in whole) == [0, 1, 2]
    assert post(quick, path, {**body, "top_n": 2}).json()["results"] == whole[:2]


def test_pooling_gives_a_vector_an_input(quick: Fleet) -> None:
    rows = post(quick, "/pooling", {"input": ["a", "b"]}).json()["data"]
    assert [len(row["data"]) for row in rows] == [32, 32]
    assert rows[0]["data"] != rows[1]["data"]


def test_tokens_are_counted_as_vllm_says_it(quick: Fleet) -> None:
    _, theirs = recorded("tokenize.http")
    ours = post(quick, "/tokenize", {"prompt": "hello"}).json()
    assert not unknown_fields(ours, json.loads(theirs))
    assert ours["max_model_len"] == 2048


# Options of the process.


@pytest.fixture
def sized() -> Iterator[Fleet]:
    sizes = ("--kv-tokens=6400", "--block-size=32", "--max-model-len=4096", "--max-num-seqs=3")
    more = ("--speed=2", "--profile=realistic", "--max-queued-requests=1")
    yield from started(*more, sizes=sizes)


def test_a_pool_in_tokens_and_a_queue_with_an_end(sized: Fleet) -> None:
    state = sized.state()
    assert (state["kv_blocks"], state["kv_block_size"], state["max_num_seqs"]) == (200, 32, 3)
    assert sized.get("/v1/models").json()["data"][0]["max_model_len"] == 4096
    sized.faults(freeze=True)
    sock = raw_post(sized.url, "/v1/completions", LONG)
    sized.until(lambda: sized.state()["waiting"] == 1, "queued")
    assert post(sized, "/v1/completions", LONG).status_code == 503
    name = 'vllm:admission_rejections_total{model_name="tiny",reason="max_num_queued_reqs"}'
    assert sized.metric(name) == 1
    sock.close()


def test_too_little_kv_is_preemption_and_everybody_is_served() -> None:
    for fleet in started("--profile=instant", "--max-num-seqs=8", "--num-blocks=128"):
        body = {"prompt": "a" * 400, "max_tokens": 900, "ignore_eos": True}
        fleet.faults(freeze=True)  # Until all are there; else some may end before the last comes.
        socks = [
            raw_post(
                fleet.url, "/v1/completions", {**body, "cache_salt": str(n)}, "connection: close"
            )
            for n in range(6)
        ]

        def all_are_there(fleet: Fleet = fleet) -> bool:
            state = fleet.state()
            return bool(state["running"] + state["waiting"] == 6)

        fleet.until(all_are_there, "all six are there")
        fleet.http.delete(f"{fleet.url}/emulator/faults")
        for sock in socks:
            assert b'"completion_tokens":900' in read_all(sock)
        state = fleet.state()
        assert state["preemptions"] > 0
        assert fleet.metric("vllm:num_preemptions_total") == state["preemptions"]
        assert (state["served"], state["kv_blocks_used"]) == (6, 0)
        assert state["generation_tokens"] == 5400
