"""Decodes request bodies: the fields that an emulated engine reads, as tolerantly as vLLM does.

Unknown fields are ignored. A number in a string is accepted as a number. A fraction is refused
where an integer is expected. Every error is a `Refusal` with vLLM's message; the persona formats
the error and interprets `priority`. This module knows nothing about HTTP connections.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from router.core.flags import flag_of
from router.core.unreadable import NOT_JSON
from router.lab.emulator.http.text import from_token_ids, pad


class Refusal(Exception):
    """Raised to answer a request with an error in OpenAI's format."""

    def __init__(self, status: int, message: str, type: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.param = param


def _flag(value: Any, name: str) -> bool | None:
    if value is None:
        return None
    found = flag_of(value)
    if found is None:
        raise Refusal(400, f"1 validation error: {name} must be a boolean", "Bad Request", name)
    return found


class StreamOptions(msgspec.Struct):
    include_usage: Any = None
    continuous_usage_stats: Any = None

    def __post_init__(self) -> None:
        self.include_usage = _flag(self.include_usage, "include_usage")
        self.continuous_usage_stats = _flag(self.continuous_usage_stats, "continuous_usage_stats")


class Body(msgspec.Struct, kw_only=True):
    model: str | None = None
    stream: Any = False
    stream_options: StreamOptions | None = None
    priority: Any = None
    rid: str | list[str] | None = None
    ignore_eos: bool | None = False
    min_tokens: int | None = 0
    cache_salt: str | None = None
    n: int | None = 1
    stop: str | list[str] | None = None
    include_stop_str_in_output: bool | None = False

    def __post_init__(self) -> None:
        self.stream = _flag(self.stream, "stream")

    def limit(self) -> int | None:
        """The client's limit of output tokens; None: no limit."""
        raise NotImplementedError

    def prompt_bytes(self) -> bytes:
        """The prompt, padded to whole tokens."""
        raise NotImplementedError

    def stops(self) -> list[str]:
        """The strings that end an answer."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop
        return [one for one in stops or () if one]


class ChatBody(Body, kw_only=True):
    messages: list[Any]
    tools: Any = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    add_generation_prompt: bool | None = True
    continue_final_message: bool | None = False

    def limit(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    def prompt_bytes(self) -> bytes:
        if self.continue_final_message and self.add_generation_prompt:
            message = (
                "Cannot set both `continue_final_message` and `add_generation_prompt` to True."
            )
            raise Refusal(400, message, "BadRequestError")
        return render(self.messages, self.tools, is_turn=bool(self.add_generation_prompt))


class CompletionBody(Body, kw_only=True):
    prompt: Any
    max_tokens: int | None = 16  # OpenAI's default for this route
    echo: bool | None = False

    def limit(self) -> int | None:
        return self.max_tokens

    def prompt_bytes(self) -> bytes:
        return text_or_ids(self.prompt, "prompt")


class MessagesBody(Body, kw_only=True):
    messages: list[Any]
    max_tokens: int
    system: Any = None
    tools: Any = None

    def limit(self) -> int | None:
        return self.max_tokens

    def prompt_bytes(self) -> bytes:
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        return render(system + self.messages, self.tools)


class ResponsesBody(Body, kw_only=True):
    input: Any
    instructions: str | None = None
    max_output_tokens: int | None = None
    previous_response_id: str | None = None
    store: bool | None = True
    tools: Any = None

    def limit(self) -> int | None:
        return self.max_output_tokens

    def turns(self) -> list[Any]:
        """The input of the request as chat messages."""
        if isinstance(self.input, list):
            return self.input
        return [{"role": "user", "content": self.input}]

    def prompt_bytes(self) -> bytes:
        system = []
        if self.instructions is not None:
            system = [{"role": "system", "content": self.instructions}]
        return render(system + self.turns(), self.tools)


class EmbeddingBody(Body, kw_only=True):
    input: Any
    encoding_format: str | None = "float"
    dimensions: int | None = None

    def inputs(self) -> list[bytes]:
        """The texts to embed, each padded to whole tokens."""
        several = self.input
        if not isinstance(several, list) or (several and isinstance(several[0], int)):
            several = [several]
        return [text_or_ids(one, "input") for one in several]


class PoolingBody(Body, kw_only=True):
    input: Any = None
    messages: list[Any] | None = None

    def inputs(self) -> list[bytes]:
        if self.messages is not None:
            return [render(self.messages)]
        several = self.input
        if not isinstance(several, list) or (several and isinstance(several[0], int)):
            several = [several]
        return [text_or_ids(one, "input") for one in several]


class ScoreBody(Body, kw_only=True):
    text_1: str | list[str]
    text_2: str | list[str]

    def pairs(self) -> list[bytes]:
        """Pairs of texts to score. If `text_1` is one text, it is paired with each of `text_2`."""
        first = [self.text_1] if isinstance(self.text_1, str) else self.text_1
        second = [self.text_2] if isinstance(self.text_2, str) else self.text_2
        if len(first) == 1:
            first = first * len(second)
        if len(first) != len(second) or not first:
            message = "Input lengths must be either 1:1, 1:N or N:N"
            raise Refusal(400, message, "BadRequestError")
        return [pair(one, other) for one, other in zip(first, second, strict=True)]


class RerankBody(Body, kw_only=True):
    query: str
    documents: list[Any]
    top_n: int | None = None

    def texts(self) -> list[str]:
        return [
            one if isinstance(one, str) else msgspec.json.encode(one).decode()
            for one in self.documents
        ]


class TokenizeBody(Body, kw_only=True):
    prompt: Any = None
    inputs: Any = None  # TGI's name of the field with the text
    content: Any = None  # llama.cpp's name of the field with the text
    messages: list[Any] | None = None
    tools: Any = None
    add_generation_prompt: bool | None = True
    return_token_strs: bool | None = False

    def prompt_bytes(self) -> bytes:
        if self.messages is not None:
            return render(self.messages, self.tools, is_turn=bool(self.add_generation_prompt))
        for value in (self.inputs, self.content):
            if value is not None:
                return text_or_ids(value, "inputs")
        return text_or_ids(self.prompt, "prompt")


B = TypeVar("B", bound=Body)


def decode(raw: bytes, type: type[B]) -> B:
    """Decode a JSON body. Raises Refusal (400) for invalid JSON or a wrong format."""
    try:
        return msgspec.json.decode(raw, type=type, strict=False)
    except msgspec.ValidationError as err:
        what, _, where = str(err).partition(" - at `$")
        param = "body" + where.rstrip("`")
        message = f"1 validation error:\n  {{'loc': '{param}', 'msg': '{what}'}}"
        raise Refusal(400, message, "Bad Request", param) from None
    except NOT_JSON as err:
        message = f"1 validation error:\n  {{'type': 'json_invalid', 'msg': '{err}'}}"
        raise Refusal(400, message, "Bad Request", "body") from None


def text_or_ids(value: Any, param: str) -> bytes:
    """One prompt, given as text or as token IDs, padded to whole tokens."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], (str, list)):
        value = value[0]
    if isinstance(value, str) and value:
        return pad(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, list) and value and all(type(i) is int for i in value):
        return from_token_ids(value)
    raise Refusal(400, f"{param} must be one text or one list of tokens", "BadRequestError", param)


def pair(query: str, document: str) -> bytes:
    """The input of a cross-encoder for the two texts."""
    return b"".join(
        pad(part.encode("utf-8", "surrogatepass")) for part in (query, "<|sep|>", document)
    )


def render(messages: list[Any], tools: Any = None, is_turn: bool = True) -> bytes:
    """The prompt of a chat, in this emulator's chat template.

    Every message is padded to whole tokens. So a longer conversation begins with exactly the tokens
    of the shorter one, including its generated answer. If `is_turn` is False, the last message
    stays open, and the answer continues that message.
    """
    if not messages:
        raise Refusal(400, "messages must not be empty", "BadRequestError", "messages")
    parts = []
    if tools:
        parts += [pad(b"<|tools|>"), pad(msgspec.json.encode(tools))]
    for message in messages:
        if not isinstance(message, dict):
            raise Refusal(400, "a message must be an object", "BadRequestError", "messages")
        parts.append(pad(f"<|{message.get('role', 'user')}|>".encode("utf-8", "surrogatepass")))
        parts.append(_content(message.get("content")))
        if message.get("tool_calls"):
            parts.append(pad(msgspec.json.encode(message["tool_calls"])))
    if is_turn:
        parts.append(pad(b"<|assistant|>"))
    return b"".join(parts)


def _content(content: Any) -> bytes:
    if content is None:
        return b""
    if isinstance(content, str):
        return pad(content.encode("utf-8", "surrogatepass"))
    if isinstance(content, list):
        texts = [
            part["text"]
            if isinstance(part, dict) and isinstance(part.get("text"), str)
            else msgspec.json.encode(part).decode()
            for part in content
        ]
        return b"".join(_content(text) for text in texts)
    return pad(msgspec.json.encode(content))
