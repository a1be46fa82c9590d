"""What routing reads of a request's body. Plain values; `body` fills them.

Must never: judge, or outlive the body with a view into it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

# msgspec takes `Raw | None` for a union that only null fits, but does not look at defaults: so a
# type checker is told what it is, and the decoder what it may find.
if TYPE_CHECKING:
    from router.intake.stretch import Stretch

    MaybeRaw = msgspec.Raw | None
    # A long prompt of a large body is a `Stretch`.
    MaybeText = msgspec.Raw | Stretch | None
else:
    MaybeRaw = MaybeText = msgspec.Raw

MAX_SESSION: Final = 256  # characters of a session key; a longer one is none


class Fields(msgspec.Struct, gc=False):
    """What routing reads of a body. None: absent, or of a type that is not ours to judge.

    A `Raw` is JSON as the client wrote it, whatever its type (`null` too: ask `is_given`), and it
    is a view that keeps the whole body alive: `drop` them as soon as they have been read.
    """

    model: str | None = None
    stream: bool | None = None
    previous_response_id: str | None = None
    # The prompt, by kind of route.
    messages: MaybeText = None
    prompt: MaybeText = None
    input: MaybeText = None
    instructions: MaybeText = None
    system: MaybeText = None
    # What changes the meaning of a prompt's prefix.
    tools: MaybeText = None
    cache_salt: MaybeRaw = None
    # Whose conversation it is. Raw, because bad text in them must not make the body bad.
    session_id: MaybeRaw = None
    prompt_cache_key: MaybeRaw = None
    user: MaybeRaw = None
    # Limits of the output, and the number of choices.
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    n: int | None = None
    # What the router may have to write anew.
    priority: MaybeRaw = None
    service_tier: MaybeRaw = None
    stream_options: MaybeRaw = None
    rid: MaybeRaw = None
    request_id: MaybeRaw = None
    # What an engine may take besides what the router has judged (`authority`).
    lora: MaybeRaw = None
    lora_path: MaybeRaw = None
    lora_request: MaybeRaw = None
    parameters: MaybeRaw = None

    def drop(self) -> None:
        """Let go of every view into the body."""
        self.messages = self.prompt = self.input = self.instructions = self.system = None
        self.tools = self.cache_salt = self.priority = self.service_tier = None
        self.stream_options = self.rid = self.lora_path = self.parameters = None
        self.request_id = self.lora = self.lora_request = None
        self.session_id = self.prompt_cache_key = self.user = None


class Unread(Fields, gc=False):
    """Of a body that could not be read as its engine may read it: nothing is known for sure."""

    why: str = ""  # set by us; never decoded


class Parameters(msgspec.Struct, gc=False):
    """The members of a body's `parameters` that give a request authority, or name it."""

    lora_path: MaybeRaw = None
    adapter_id: MaybeRaw = None
    priority: MaybeRaw = None
    rid: MaybeRaw = None
