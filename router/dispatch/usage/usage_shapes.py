"""The members in which engines report token counts, and in which requests ask for them."""

from __future__ import annotations

from typing import Annotated

import msgspec

_Tokens = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]


class Details(msgspec.Struct):
    """Details of the prompt's tokens."""

    cached_tokens: _Tokens | None = None


class UsageAnswer(msgspec.Struct):
    """Token counts: `usage` of OpenAI's and Anthropic's APIs, or `timings` of llama.cpp."""

    prompt_tokens: _Tokens | None = None
    completion_tokens: _Tokens | None = None
    prompt_tokens_details: Details | None = None
    input_tokens: _Tokens | None = None
    output_tokens: _Tokens | None = None
    input_tokens_details: Details | None = None
    cache_read_input_tokens: _Tokens | None = None
    cache_creation_input_tokens: _Tokens | None = None
    prompt_n: _Tokens | None = None
    predicted_n: _Tokens | None = None
    cache_n: _Tokens | None = None


class ResponseBody(msgspec.Struct):
    """An answer of /v1/responses; its other members may have any content."""

    usage: msgspec.Raw = msgspec.Raw()


class ResponseEvent(ResponseBody):
    """An answer of /v1/responses, or an event that contains the answer as `response`."""

    response: ResponseBody | None = None


class Asked(msgspec.Struct):
    """The part of a request's body that shows whether the client asks for token counts."""

    stream_options: msgspec.Raw = msgspec.Raw()
