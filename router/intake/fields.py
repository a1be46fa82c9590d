"""The fields of a request body that routing needs. Plain values; `body` fills them.

Must never: judge a value, or keep a view into the body longer than the body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

# msgspec takes `Raw | None` for a union that only null fits, but ignores defaults. So the
# annotation for the type checker differs from the one for the decoder.
if TYPE_CHECKING:
    from router.intake.stretch import Stretch

    MaybeRaw = msgspec.Raw | None
    # A long prompt of a large body is a `Stretch`.
    MaybeText = msgspec.Raw | Stretch | None
else:
    MaybeRaw = MaybeText = msgspec.Raw

MAX_SESSION: Final = 256  # characters of a session key; a longer key is ignored


class Fields(msgspec.Struct, gc=False):
    """The fields of a body that routing needs. `None`: absent, or of a type that only the engine
    judges.

    A `Raw` is JSON as the client wrote it, of any type (also `null`: call `is_given`). A `Raw` is a
    view that keeps the whole body alive, so call `drop` as soon as the fields have been read.
    """

    model: str | None = None
    stream: bool | None = None
    previous_response_id: str | None = None
    # The members that hold the prompt, by kind of route.
    messages: MaybeText = None
    prompt: MaybeText = None
    input: MaybeText = None
    instructions: MaybeText = None
    system: MaybeText = None
    # Members that change the meaning of a prompt's prefix.
    tools: MaybeText = None
    cache_salt: MaybeRaw = None
    # The conversation that the request belongs to. Raw, because invalid text here must not make
    # the whole body invalid.
    session_id: MaybeRaw = None
    prompt_cache_key: MaybeRaw = None
    user: MaybeRaw = None
    # Limits of the output, and the number of choices.
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

    def drop(self) -> None:
        """Release every view into the body."""
        self.messages = self.prompt = self.input = self.instructions = self.system = None
        self.tools = self.cache_salt = self.priority = self.service_tier = None
        self.stream_options = self.rid = self.lora_path = self.parameters = None
        self.request_id = self.lora = self.lora_request = None
        self.session_id = self.prompt_cache_key = self.user = None


class Unread(Fields, gc=False):
    """The fields of a body that the router could not read as its engine may read it."""

    why: str = ""  # The reason, in words. Set by the router; never decoded from a body.


class Parameters(msgspec.Struct, gc=False):
    """The members of a body's `parameters` that choose an adapter or a priority, or name the
    request.
    """

    lora_path: MaybeRaw = None
    adapter_id: MaybeRaw = None
    priority: MaybeRaw = None
    rid: MaybeRaw = None
