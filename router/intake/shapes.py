"""The shapes of JSON that are decoded: msgspec implements these structs in C.

Compiled code needs 184 instructions to read one field of a struct. So `fields.py` takes all members
of a body out of a `Members` at once.

Must never: validate a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

# With the annotation `Raw | None`, msgspec would accept only null; it ignores the type of a default
# value. So the annotation for the type checker differs from the annotation for the decoder.
if TYPE_CHECKING:
    MaybeRaw = msgspec.Raw | None
else:
    MaybeRaw = msgspec.Raw


class Members(msgspec.Struct, gc=False):
    """The members of a body that routing needs, in the order of `fields.NAMES`.

    Raw JSON is decoded only if it is used, so that invalid text in such a member does not make the
    whole body invalid.
    """

    model: str | None = None
    messages: MaybeRaw = None
    stream: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    n: int | None = None
    previous_response_id: str | None = None
    prompt: MaybeRaw = None
    input: MaybeRaw = None
    instructions: MaybeRaw = None
    system: MaybeRaw = None
    tools: MaybeRaw = None
    cache_salt: MaybeRaw = None
    priority: MaybeRaw = None
    stream_options: MaybeRaw = None
    service_tier: MaybeRaw = None
    session_id: MaybeRaw = None
    prompt_cache_key: MaybeRaw = None
    user: MaybeRaw = None
    metadata: MaybeRaw = None
    rid: MaybeRaw = None
    request_id: MaybeRaw = None
    lora: MaybeRaw = None
    lora_path: MaybeRaw = None
    lora_request: MaybeRaw = None
    parameters: MaybeRaw = None
    background: MaybeRaw = None


class Parameters(msgspec.Struct, gc=False):
    """The members of a body's `parameters` that contain an adapter, a priority or a request ID."""

    lora_path: MaybeRaw = None
    adapter_id: MaybeRaw = None
    priority: MaybeRaw = None
    rid: MaybeRaw = None


class Sampling(msgspec.Struct, gc=False):
    """The number of answers in the `sampling_params` of an engine's own route."""

    n: int = 1


class NativePrompts(msgspec.Struct, gc=False):
    """The members of a body of SGLang's /generate that set the number of its answers."""

    text: MaybeRaw = None
    input_ids: MaybeRaw = None
    input_embeds: MaybeRaw = None
    # One object for all prompts, or one for each.
    sampling_params: Sampling | list[Sampling] | None = None
