"""Our answers compared with vLLM's: the same events in the same order, and no unknown field."""

import json
from typing import Any

import httpx
import pytest

from tests.app.emulator.conftest import Fleet
from tests.places import DATA

RECORDED = DATA / "vllm-0.32"
CHAT = [{"role": "user", "content": "Tell me of the fox."}]
# vLLM fills this field only with --enable-prompt-tokens-details; the emulator always fills it.
OURS = {"prompt_tokens_details"}


def recorded(name: str) -> tuple[httpx.Headers, bytes]:
    """Head and body, unchunked, of a recorded answer."""
    head, _, body = (RECORDED / name).read_bytes().partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")[1:]
    headers = httpx.Headers([tuple(line.split(": ", 1)) for line in lines])  # type: ignore[misc]
    if headers.get("transfer-encoding") != "chunked":
        return headers, body
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        whole += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    return headers, whole


def events(body: bytes) -> list[tuple[str | None, Any]]:
    """(event name, decoded data) of a stream."""
    found = []
    for block in body.decode().strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        data = fields["data"]
        found.append((fields.get("event"), data if data == "[DONE]" else json.loads(data)))
    return found


def kind(name: str | None, value: Any) -> str:
    """The kind of an event, independent of its text."""
    if name or value == "[DONE]":
        return name or value
    if "usage" in value:
        return "usage"
    choice = value["choices"][0]
    kinds = ["role"] if "role" in choice.get("delta", {}) else ["content"]
    return "+".join(kinds + (["finish"] if choice["finish_reason"] else []))


def distinct(kinds: list[str]) -> list[str]:
    """The order of event kinds, independent of the number of tokens."""
    return [one for index, one in enumerate(kinds) if not index or kinds[index - 1] != one]


def unknown_fields(ours: Any, theirs: Any, path: str = "") -> set[str]:
    """Fields of the emulator, at any depth, that vLLM does not have."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found = {f"{path}.{key}" for key in ours if key not in theirs and key not in OURS}
        for key in ours.keys() & theirs.keys():
            found |= unknown_fields(ours[key], theirs[key], f"{path}.{key}")
        return found
    if isinstance(ours, list) and isinstance(theirs, list) and ours and theirs:
        return unknown_fields(ours[0], theirs[0], f"{path}[]")
    return set()


STREAMS = [
    ("chat_stream.http", "/v1/chat/completions", {"messages": CHAT, "max_tokens": 6}),
    (
        "chat_stream_usage.http",
        "/v1/chat/completions",
        {"messages": CHAT, "max_tokens": 4, "stream_options": {"include_usage": True}},
    ),
    ("completion_stream.http", "/v1/completions", {"prompt": "hello", "max_tokens": 4}),
    ("messages_stream.http", "/v1/messages", {"messages": CHAT, "max_tokens": 4}),
    ("responses_stream.http", "/v1/responses", {"input": "hello", "max_output_tokens": 4}),
]


@pytest.mark.parametrize(("name", "path", "body"), STREAMS, ids=[row[0] for row in STREAMS])
def test_a_stream_is_like_the_recorded_one(
    quick: Fleet, name: str, path: str, body: dict[str, Any]
) -> None:
    answer = quick.post(path, json={**body, "model": "tiny", "stream": True})
    headers, theirs = recorded(name)
    assert answer.status_code == 200
    for header in ("content-type", "transfer-encoding"):
        assert answer.headers[header] == headers[header]
    ours, recorded_events = events(answer.content), events(theirs)
    assert distinct([kind(*one) for one in ours]) == distinct(
        [kind(*one) for one in recorded_events]
    )
    by_kind = {kind(*one): one[1] for one in recorded_events}
    for one in ours:
        assert not unknown_fields(one[1], by_kind[kind(*one)])


@pytest.mark.parametrize(
    ("name", "method", "path", "body"),
    [
        ("chat.http", "POST", "/v1/chat/completions", {"messages": CHAT, "max_tokens": 6}),
        ("models.http", "GET", "/v1/models", None),
        ("error_too_long.http", "POST", "/v1/completions", {"prompt": "hello " * 3000}),
        ("error_unknown_model.http", "POST", "/v1/completions", {"prompt": "a", "model": "nope"}),
        ("error_bad_json.http", "POST", "/v1/chat/completions", b"{"),
    ],
)
def test_a_whole_answer_is_like_the_recorded_one(
    quick: Fleet, name: str, method: str, path: str, body: dict[str, Any] | bytes | None
) -> None:
    if isinstance(body, bytes):
        answer = quick.http.request(method, quick.url + path, content=body)
    else:
        answer = quick.http.request(method, quick.url + path, json=body)
    headers, theirs = recorded(name)
    assert answer.headers["content-type"] == headers["content-type"]
    value = json.loads(theirs)
    assert answer.status_code == value.get("error", {}).get("code", 200)
    assert not unknown_fields(answer.json(), value)
    if "error" in value:
        for field in ("type", "param", "code"):
            assert answer.json()["error"][field] == value["error"][field]


def test_an_unknown_path_and_a_wrong_method(quick: Fleet) -> None:
    nowhere = quick.get("/nowhere")
    assert (nowhere.status_code, nowhere.json()) == (404, {"detail": "Not Found"})
    wrong = quick.get("/v1/completions")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
