"""The members of a request body that routing needs. The module `body` reads them.

Must never: validate a value, or keep a reference to the body's bytes longer than needed (`drop`).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from router.intake.shapes import Members
from router.intake.stretch import Stretch

# A raw value refers to the bytes of the whole body. A long prompt of a large body is a `Stretch`.
Text = msgspec.Raw | Stretch | None

# Compiled code calls a `Final` without a search for its name.
_values: Final[Any] = astuple
NAMES: Final[tuple[str, ...]] = Members.__struct_fields__
# The members from this index on are rare. They are in `Fields.others`.
_RARE: Final = 16
RARE: Final = frozenset(NAMES[_RARE:])


class Fields:
    """The members of a body that routing needs.

    `None` means that the member is absent, or that its type is unexpected. A `Raw` is the JSON that
    the client wrote, of any type (also `null`: call `is_given`). A `Raw` keeps the bytes of the
    whole body in memory. So call `drop` as soon as the fields have been read.
    """

    __slots__ = (
        "cache_salt",
        "input",
        "instructions",
        "max_completion_tokens",
        "max_output_tokens",
        "max_tokens",
        "messages",
        "model",
        "n",
        "others",
        "previous_response_id",
        "priority",
        "prompt",
        "stream",
        "stream_options",
        "system",
        "tools",
    )

    def __init__(self) -> None:
        self.model: str | None = None
        self.stream: bool | None = None
        self.previous_response_id: str | None = None
        # The limits of output tokens, and the number of choices.
        self.max_tokens: int | None = None
        self.max_completion_tokens: int | None = None
        self.max_output_tokens: int | None = None
        self.n: int | None = None
        # The members that contain the prompt. Which of them do depends on the kind of the route.
        self.messages: Text = None
        self.prompt: Text = None
        self.input: Text = None
        self.instructions: Text = None
        self.system: Text = None
        # Members on which an engine's prefix cache depends, in addition to the prompt.
        self.tools: Text = None
        self.cache_salt: msgspec.Raw | None = None
        # Members that the router may have to rewrite.
        self.priority: msgspec.Raw | None = None
        self.stream_options: msgspec.Raw | None = None
        # The members in `RARE`: the keys of the conversation, the names of the request,
        # `service_tier`, and members by which an engine may exceed the limits that the router
        # applied (`authority`). `None`: the body has none of them.
        self.others: dict[str, msgspec.Raw] | None = None

    def other(self, name: str) -> msgspec.Raw | None:
        """Return a member in `RARE`."""
        others = self.others
        return None if others is None else others.get(name)

    def put(self, name: str, value: Any) -> None:
        """Sets the member `name`."""
        if name not in RARE:
            setattr(self, name, value)
        elif value is not None:
            if self.others is None:
                self.others = {}
            self.others[name] = value
        elif self.others is not None:
            self.others.pop(name, None)

    def drop(self) -> None:
        """Releases every reference to the bytes of the body."""
        self.messages = self.prompt = self.input = self.instructions = self.system = None
        self.tools = self.cache_salt = self.priority = self.stream_options = self.others = None


class Unread(Fields):
    """The fields of a body that the router could not read, although an engine may read it."""

    __slots__ = ("is_scanned", "why")

    def __init__(self, why: str = "", is_scanned: bool = False) -> None:
        super().__init__()
        self.why = why  # why the router could not read the body
        self.is_scanned = is_scanned  # whether all members of the body were found


def fields_of(members: Members) -> Fields:
    """Return the fields of decoded members."""
    values: tuple[Any, ...] = _values(members)
    fields = Fields()
    fields.model = values[0]
    fields.messages = values[1]
    fields.stream = values[2]
    fields.max_tokens = values[3]
    fields.max_completion_tokens = values[4]
    fields.max_output_tokens = values[5]
    fields.n = values[6]
    fields.previous_response_id = values[7]
    fields.prompt = values[8]
    fields.input = values[9]
    fields.instructions = values[10]
    fields.system = values[11]
    fields.tools = values[12]
    fields.cache_salt = values[13]
    fields.priority = values[14]
    fields.stream_options = values[15]
    for at in range(_RARE, len(NAMES)):
        value = values[at]
        if value is not None:
            fields.put(NAMES[at], value)
    return fields
