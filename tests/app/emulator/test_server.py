"""One emulated engine over real sockets: responses, and the effect of a disconnect."""

import json
import select
import socket

import openai
import pytest
from openai import OpenAI

from tests.app.emulator.conftest import Fleet

CHAT = [{"role": "user", "content": "Tell me of the fox, the owl and what they saw."}]
LONG = {"prompt": "go on", "max_tokens": 1500, "ignore_eos": True}


@pytest.fixture
def client(quick: Fleet) -> OpenAI:
    return OpenAI(base_url=quick.url + "/v1", api_key="none", http_client=quick.http)


def raw_post(url: str, path: str, body: object, *headers: str) -> socket.socket:
    """Send a request on its own connection without reading the answer."""
    host, port = url.removeprefix("http://").split(":")
    sock = socket.create_connection((host, int(port)), timeout=20)
    payload = json.dumps(body).encode()
    head = [f"POST {path} HTTP/1.1", "host: x", f"content-length: {len(payload)}", *headers]
    sock.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + payload)
    return sock


def read_all(sock: socket.socket) -> bytes:
    data = b""
    while piece := sock.recv(65536):
        data += piece
    sock.close()
    return data


def test_the_sdk_gets_the_same_text_streamed_and_whole(client: OpenAI) -> None:
    whole = client.chat.completions.create(model="tiny", messages=CHAT)  # type: ignore[arg-type]
    assert whole.usage is not None
    text = whole.choices[0].message.content
    assert text
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage.completion_tokens * 4 == len(text)
    chunks = list(
        client.chat.completions.create(  # type: ignore[call-overload]
            model="tiny", messages=CHAT, stream=True, stream_options={"include_usage": True}
        )
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"


def test_every_replica_answers_alike_and_says_who_it_is(quick: Fleet) -> None:
    answers = [
        quick.http.post(url + "/v1/completions", json={"prompt": "The fox"}) for url in quick.urls
    ]
    assert [answer.headers["x-emulated-replica"] for answer in answers] == [
        "emulated-0",
        "emulated-1",
    ]
    first, second = (answer.json()["choices"] for answer in answers)
    assert first == second
    assert first[0]["finish_reason"] == "length"


def test_counts_agree_between_tokenize_usage_and_the_cache(quick: Fleet) -> None:
    prompt = "counting words, " * 20
    counted = quick.post("/tokenize", json={"prompt": prompt}).json()
    queried = quick.metric("vllm:prefix_cache_queries_total")
    bodies = [
        quick.post("/v1/completions", json={"prompt": prompt, "max_tokens": 2}).json()
        for _ in range(2)
    ]
    assert counted["count"] == len(counted["tokens"]) == 80
    assert [body["usage"]["prompt_tokens"] for body in bodies] == [80, 80]
    assert quick.metric("vllm:prefix_cache_queries_total") == queried + 160
    # Cached tokens are whole blocks of 16 tokens, and never include the last token of the prompt.
    assert bodies[1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 64
    chat = quick.post("/tokenize", json={"messages": CHAT}).json()["count"]
    answer = quick.post("/v1/chat/completions", json={"messages": CHAT, "max_tokens": 1}).json()
    assert answer["usage"]["prompt_tokens"] == chat


def test_the_next_turn_hits_what_was_generated(client: OpenAI) -> None:
    ask: list[dict[str, str]] = [{"role": "user", "content": "a conversation about beginnings"}]
    first = client.chat.completions.create(model="tiny", messages=ask)  # type: ignore[call-overload]
    ask += [
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "and then?"},
    ]
    second = client.chat.completions.create(model="tiny", messages=ask, max_tokens=1)  # type: ignore[call-overload]
    kept = first.usage.total_tokens - 1
    assert second.usage.prompt_tokens_details.cached_tokens == kept - kept % 16


def test_a_salt_keeps_caches_apart(quick: Fleet) -> None:
    body = {"prompt": "a secret that is long enough to fill blocks " * 4, "max_tokens": 1}
    for salt in ("mine", "yours"):
        answer = quick.post("/v1/completions", json={**body, "cache_salt": salt})
        assert answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_stream_heads_come_before_any_token(fleet: Fleet) -> None:
    fleet.faults(freeze=True)
    with fleet.http.stream(
        "POST", fleet.url + "/v1/completions", json={**LONG, "stream": True}
    ) as s:
        assert s.status_code == 200
        assert fleet.state()["running"] + fleet.state()["waiting"] == 1


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_takes_its_request_with_it(fleet: Fleet, stream: bool) -> None:
    aborted = fleet.state()["aborted"]
    sock = raw_post(fleet.url, "/v1/completions", {**LONG, "stream": stream})
    fleet.until(lambda: fleet.metric("vllm:num_requests_running") == 1, "running")
    sock.close()
    fleet.until(lambda: fleet.metric("vllm:num_requests_running") == 0, "gone")
    assert fleet.state()["aborted"] == aborted + 1
    assert fleet.metric("vllm:kv_cache_usage_perc") == 0


def test_those_who_wait_leave_as_well(fleet: Fleet) -> None:
    socks = [raw_post(fleet.url, "/v1/completions", LONG) for _ in range(6)]
    fleet.until(lambda: fleet.metric("vllm:num_requests_waiting") == 4, "two running, four waiting")
    for sock in socks[::-1]:
        sock.close()
    fleet.until(lambda: fleet.metric("vllm:num_requests_waiting") == 0, "nobody waiting")
    fleet.until(lambda: fleet.metric("vllm:num_requests_running") == 0, "nobody running")


@pytest.mark.parametrize("how", ["body", "header"])
def test_urgent_requests_are_served_first(fleet: Fleet, how: str) -> None:
    holding = [raw_post(fleet.url, "/v1/completions", LONG) for _ in range(2)]
    fleet.until(lambda: fleet.state()["running"] == 2, "both slots taken")
    waiting: dict[socket.socket, int] = {}
    for priority in (5, 0, -5):
        body = {**LONG, "stream": True, "priority": priority if how == "body" else -priority}
        header = f"x-vllm-priority: {priority}" if how == "header" else "x-nothing: 1"
        sock = raw_post(fleet.url, "/v1/completions", body, header)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += sock.recv(1)
        waiting[sock] = priority
    fleet.until(lambda: fleet.state()["waiting"] == 3, "all queued")
    order = []
    leaving = holding.pop()
    while waiting:
        # The freed slot goes to the next request, and only this request gets tokens.
        leaving.close()
        (leaving,), _, _ = select.select(list(waiting), [], [], 10)
        order.append(waiting.pop(leaving))
    leaving.close()
    holding.pop().close()
    assert order == [-5, 0, 5]


def test_limits_and_reasons(quick: Fleet) -> None:
    def ask(**body: object) -> tuple[str, int]:
        answer = quick.post("/v1/completions", json={"prompt": "a", **body}).json()
        return answer["choices"][0]["finish_reason"], answer["usage"]["completion_tokens"]

    assert ask(max_tokens=3) == ("length", 3)
    assert ask(max_tokens=600, ignore_eos=True) == ("length", 600)
    reason, natural = ask(max_tokens=1000)
    assert reason == "stop"
    assert ask(max_tokens=1000, min_tokens=natural + 1)[1] > natural


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "a", "n": 0},
        {"prompt": "a", "max_tokens": 0},
        {"prompt": "a", "max_tokens": 2048},
        {"prompt": "a", "priority": 0.5},
        {"prompt": ""},
        {},
    ],
)
def test_what_cannot_be_done_is_refused_in_openai_shape(
    quick: Fleet, body: dict[str, object]
) -> None:
    answer = quick.post("/v1/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == 400


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/tokenize"])
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_body_that_cannot_be_decoded_is_a_400(quick: Fleet, path: str, encoding: str) -> None:
    head = "content-type: application/json"
    answer = read_all(raw_post(quick.url, path, LONG, head, f"content-encoding: {encoding}"))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"the body cannot be decoded"' in answer


def test_an_incoming_request_id_becomes_the_id(quick: Fleet) -> None:
    answer = quick.post(
        "/v1/chat/completions",
        json={"messages": CHAT, "max_tokens": 1},
        headers={"x-request-id": "abc.1"},
    )
    assert answer.json()["id"] == "chatcmpl-abc.1"


def test_stored_responses_are_found_only_where_they_were_made(client: OpenAI, quick: Fleet) -> None:
    made = client.responses.create(model="tiny", input="Tell me of the fox.")
    assert client.responses.retrieve(made.id).output_text == made.output_text
    follow = client.responses.create(model="tiny", input="And?", previous_response_id=made.id)
    assert follow.usage is not None
    assert made.usage is not None
    assert follow.usage.input_tokens > made.usage.total_tokens
    elsewhere = OpenAI(base_url=quick.urls[1] + "/v1", api_key="none", http_client=quick.http)
    with pytest.raises(openai.NotFoundError):
        elsewhere.responses.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        elsewhere.responses.create(model="tiny", input="And?", previous_response_id=made.id)


def test_a_streamed_response_is_stored_too(client: OpenAI) -> None:
    deltas, done = "", None
    for event in client.responses.create(model="tiny", input="Tell me.", stream=True):
        if event.type == "response.output_text.delta":
            deltas += event.delta
        if event.type == "response.completed":
            done = event.response
    assert done is not None
    assert client.responses.retrieve(done.id).output_text == deltas == done.output_text


def test_embeddings_are_the_same_in_both_encodings(client: OpenAI, quick: Fleet) -> None:
    packed = client.embeddings.create(model="tiny", input=["one", "two"])
    plain = quick.post("/v1/embeddings", json={"input": ["one", "two"]}).json()
    for ours, theirs in zip(packed.data, plain["data"], strict=True):
        assert ours.embedding == pytest.approx(theirs["embedding"], abs=1e-6)
    assert packed.data[0].embedding != packed.data[1].embedding
    assert packed.usage.prompt_tokens == 2


def test_small_endpoints(quick: Fleet) -> None:
    for path in ("/health", "/ping"):
        answer = quick.get(path)
        assert (answer.status_code, answer.content) == (200, b"")
    assert "version" in quick.get("/version").json()


def test_metrics_are_vllms(quick: Fleet) -> None:
    before = quick.metric(
        'vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"}'
    )
    first = quick.metric("vllm:time_to_first_token_seconds_count")
    quick.post("/v1/completions", json={"prompt": "a", "max_tokens": 2})
    after = quick.metric(
        'vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"}'
    )
    assert after == before + 1
    assert quick.metric("vllm:time_to_first_token_seconds_count") == first + 1
    answer = quick.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'block_size="16"' in answer.text
    assert 'num_gpu_blocks="256"' in answer.text


def test_old_clients_get_streams_without_chunks(quick: Fleet) -> None:
    host, port = quick.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        body = b'{"prompt":"a","stream":true,"max_tokens":2}'
        sock.sendall(
            b"POST /v1/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        answer = read_all(sock)
    head, _, stream = answer.partition(b"\r\n\r\n")
    assert b"chunked" not in head.lower()
    assert stream.startswith(b"data: {")
    assert stream.endswith(b"data: [DONE]\n\n")
