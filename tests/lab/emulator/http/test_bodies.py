"""Request bodies: as tolerant as vLLM, and as strict."""

import pytest

from router.lab.emulator.http.bodies import (
    ChatBody,
    CompletionBody,
    EmbeddingBody,
    MessagesBody,
    Refusal,
    decode,
    text_or_ids,
)
from router.lab.emulator.http.personas.base import whole_number

CHAT = b'{"messages":[{"role":"user","content":"hi"}]'


def test_unknown_fields_are_ignored_and_numbers_in_strings_are_numbers() -> None:
    body = decode(CHAT + b',"never":{"heard":"of"},"max_tokens":"7","priority":"-3"}', ChatBody)
    assert (body.limit(), whole_number(body.priority)) == (7, -3)


@pytest.mark.parametrize("value", [0.5, "many", [], {}, None, "0.5"])
def test_a_priority_that_is_no_whole_number(value: object) -> None:
    with pytest.raises(Refusal) as caught:
        whole_number(value)
    assert (caught.value.status, caught.value.param) == (400, "body.priority")


def test_the_newer_limit_goes_first() -> None:
    body = decode(CHAT + b',"max_tokens":7,"max_completion_tokens":9}', ChatBody)
    assert body.limit() == 9


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"\xff\xfe", "body"),
        (b'{"messages":["\xff"]}', "body"),
        (b"[" * 100_000, "body"),
        (b'{"messages":' + b"[" * 100_000, "body"),
        (b"[]", "body"),
        (b"{}", "body"),
        (CHAT + b',"max_tokens":"many"}', "body.max_tokens"),
        (CHAT + b',"stream_options":{"include_usage":"perhaps"}}', None),
    ],
)
def test_what_is_not_a_chat_request_is_refused(raw: bytes, param: str | None) -> None:
    with pytest.raises(Refusal) as caught:
        decode(raw, ChatBody)
    assert caught.value.status == 400
    assert param is None or caught.value.param == param


@pytest.mark.parametrize(
    "prompt",
    ["hi  ", ["hi  "], [0x20206968], [[0x20206968]]],
    ids=["text", "texts", "ids", "lists"],
)
def test_a_prompt_as_text_or_as_token_ids(prompt: object) -> None:
    assert text_or_ids(prompt, "prompt") == b"hi  "


@pytest.mark.parametrize("prompt", ["", [], ["a", "b"], 7, None, [True], {"a": 1}])
def test_a_prompt_that_is_none(prompt: object) -> None:
    with pytest.raises(Refusal):
        text_or_ids(prompt, "prompt")


@pytest.mark.parametrize(
    "messages",
    [b"[]", b"[1]"],
)
def test_messages_that_are_none(messages: bytes) -> None:
    with pytest.raises(Refusal):
        decode(b'{"messages":' + messages + b"}", ChatBody).prompt_bytes()


def test_parts_of_content_and_odd_content_count_too() -> None:
    raw = b"""{"messages":[
        {"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{}}]},
        {"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},
        {"role":"tool","content":{"odd":1}}],"tools":[{"type":"function"}]}"""
    rendered = decode(raw, ChatBody).prompt_bytes()
    assert len(rendered) % 4 == 0
    for piece in (b"look", b"image_url", b"tool_calls"[:4], b'"odd":1', b"<|tools|>"):
        assert piece in rendered


def test_a_system_prompt_stands_before_the_messages() -> None:
    raw = b'{"system":"be brief","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}'
    assert decode(raw, MessagesBody).prompt_bytes().startswith(b"<|system|>  be brief<|user|>")


def test_completions_default_to_sixteen_tokens() -> None:
    assert decode(b'{"prompt":"a"}', CompletionBody).limit() == 16


@pytest.mark.parametrize(
    ("raw", "inputs"),
    [(b'"one"', 1), (b'["one","two"]', 2), (b"[1,2,3]", 1), (b"[[1],[2],[3]]", 3)],
)
def test_inputs_to_embed(raw: bytes, inputs: int) -> None:
    assert len(decode(b'{"input":' + raw + b"}", EmbeddingBody).inputs()) == inputs
