"""What clients will do in one run, decided before it begins: conversations and when each starts.

A single request is a conversation of one turn. Everything is plain data, so that a script can be
made in one process, sent to another as JSON and played there against any router: every contestant
gets the same conversations at the same moments.
"""

from __future__ import annotations

import msgspec


class Turn(msgspec.Struct, frozen=True):
    """One request: what the user says, and how many tokens the answer gets."""

    text: str
    output_tokens: int
    think_s: float = 0.0  # between the end of the answer before and this request


class Conversation(msgspec.Struct, frozen=True):
    """Turns one after the other, each with the whole history, the answers included."""

    at: float  # seconds after the run's begin
    system: str
    turns: tuple[Turn, ...]
    urgency: str = ""  # x-priority of its requests; "": they have none
    key: str = ""  # x-emulate-key of its requests, whose luck then is the same in every run
    user: str = ""  # x-user-id of its requests; "": they have none


class Script(msgspec.Struct, frozen=True):
    """Conversations in order of `at`. Requests due within [measure_from, until) are measured."""

    conversations: tuple[Conversation, ...]
    measure_from: float
    until: float  # nobody sends anything from here on

    def sizes(self) -> list[tuple[float, int]]:
        """(prompt tokens, output tokens) of every request, as if each came to its end."""
        found = []
        for conversation in self.conversations:
            history = message_tokens(conversation.system) if conversation.system else 0
            for turn in conversation.turns:
                history += message_tokens(turn.text)
                found.append((history + ROLE_TOKENS, turn.output_tokens))
                history += ROLE_TOKENS + turn.output_tokens
        return found

    def reusable(self) -> list[float]:
        """Of each request's prompt, in the order of `sizes`, the tokens some request sent before.

        Conversations count in order of `at`: turns of several at a time do not come into it.
        """
        seen: set[str] = set()
        found: list[float] = []
        for conversation in self.conversations:
            history = 0
            if conversation.system and conversation.system in seen:
                history = message_tokens(conversation.system)
            seen.add(conversation.system)
            base = message_tokens(conversation.system) if conversation.system else 0
            for turn in conversation.turns:
                found.append(float(history))
                base += message_tokens(turn.text) + ROLE_TOKENS + turn.output_tokens
                history = base
        return found


# The emulated engines' tokenizer: four bytes a token, every message padded to whole tokens behind
# its role (`<|user|>` and its like take two to four tokens).
TOKEN_BYTES = 4
ROLE_TOKENS = 3


def message_tokens(text: str) -> int:
    return ROLE_TOKENS + -(-len(text.encode()) // TOKEN_BYTES)
