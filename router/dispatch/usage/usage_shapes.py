"""The members in which engines report token counts or generated text, and requests ask for them."""

from __future__ import annotations

from typing import Any

import msgspec


class UsageAnswer(msgspec.Struct):
    """Token counts: `usage` of OpenAI's and Anthropic's APIs, or `timings` of llama.cpp.

    The members have any type, so that one invalid member does not hide the others; see
    `token_counts.count_in`.
    """

    prompt_tokens: Any = None
    completion_tokens: Any = None
    total_tokens: Any = None
    prompt_tokens_details: Any = None
    input_tokens: Any = None
    output_tokens: Any = None
    input_tokens_details: Any = None
    cache_read_input_tokens: Any = None
    cache_creation_input_tokens: Any = None
    prompt_n: Any = None
    predicted_n: Any = None
    cache_n: Any = None


class ResponseBody(msgspec.Struct):
    """An answer of /v1/responses; its other members may have any content."""

    usage: msgspec.Raw = msgspec.Raw()


class ResponseEvent(ResponseBody):
    """An answer of /v1/responses, or an event that contains the answer as `response`."""

    response: ResponseBody | None = None


class Asked(msgspec.Struct):
    """The part of a request's body that shows whether the client asks for token counts."""

    stream_options: msgspec.Raw = msgspec.Raw()


class TextChoice(msgspec.Struct):
    """The part of a chunk's choice that has generated text."""

    delta: Any = None
    text: Any = None
    logprobs: msgspec.Raw = msgspec.Raw()


class TextEvent(msgspec.Struct):
    """A chunk of OpenAI's API, or a delta of Anthropic's API or of /v1/responses."""

    choices: list[TextChoice] | None = None
    delta: Any = None
