"""The fields of a request body that routing needs. The module `body` fills them.

Must never: validate a value, or keep a reference to the body's bytes longer than needed (`drop`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

# With the annotation `Raw | None`, msgspec would accept only null; it ignores the type of a default
# value. So the annotation for the type checker differs from the annotation for the decoder.
if TYPE_CHECKING:
    from router.intake.stretch import Stretch

    MaybeRaw = msgspec.Raw | None
    # A long prompt of a large body is a `Stretch`.
    MaybeText = msgspec.Raw | Stretch | None
else:
    MaybeRaw = MaybeText = msgspec.Raw


class Fields(msgspec.Struct, gc=False):
    """The fields of a body that routing needs.

    `None` means that the member is absent, or that its type is unexpected. A `Raw` is the JSON that
    the client wrote, of any type (also `null`: call `is_given`). A `Raw` refers to the bytes of the
    whole body and keeps them in memory. So call `drop` as soon as the fields have been read.
    """

    model: str | None = None
    stream: bool | None = None
    previous_response_id: str | None = None
    # The members that contain the prompt. Which of them do depends on the kind of the route.
    messages: MaybeText = None
    prompt: MaybeText = None
    input: MaybeText = None
    instructions: MaybeText = None
    system: MaybeText = None
    # Members on which an engine's prefix cache depends, in addition to the prompt.
    tools: MaybeText = None
    cache_salt: MaybeRaw = None
    # The key of the conversation that the request belongs to. Of type `Raw`, because invalid text
    # in such a member must not make the whole body invalid.
    session_id: MaybeRaw = None
    prompt_cache_key: MaybeRaw = None
    user: MaybeRaw = None
    metadata: MaybeRaw = None
    # The limits of output tokens, and the number of choices.
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    n: int | None = None
    # Members that the router may have to rewrite.
    priority: MaybeRaw = None
    service_tier: MaybeRaw = None
    stream_options: MaybeRaw = None
    rid: MaybeRaw = None
    request_id: MaybeRaw = None
    # Members by which an engine may exceed the limits that the router applied (`authority`).
    lora: MaybeRaw = None
    lora_path: MaybeRaw = None
    lora_request: MaybeRaw = None
    parameters: MaybeRaw = None
    # Whether the engine generates the response after it has answered (/v1/responses).
    background: MaybeRaw = None

    def drop(self) -> None:
        """Releases every reference to the bytes of the body."""
        self.messages = self.prompt = self.input = self.instructions = self.system = None
        self.tools = self.cache_salt = self.priority = self.service_tier = None
        self.stream_options = self.rid = self.lora_path = self.parameters = None
        self.request_id = self.lora = self.lora_request = self.background = None
        self.session_id = self.prompt_cache_key = self.user = self.metadata = None


class Unread(Fields, gc=False):
    """The fields of a body that the router could not read, although an engine may read it."""

    why: str = ""  # why the router could not read the body; never decoded from a body
    is_scanned: bool = False  # whether all members of the body were found


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
