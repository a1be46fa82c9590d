"""What clients do in one run, decided before it begins: conversations and their start times.

A single request is a conversation of one turn. Everything is plain data, so that a script can be
made in one process, sent to another as JSON, and played there against any router: every contestant
gets the same conversations at the same times.
"""

from __future__ import annotations

import msgspec


class Turn(msgspec.Struct, frozen=True):
    """One request: the user's message and the length of the answer in tokens."""

    text: str
    output_tokens: int
    think_s: float = 0.0  # seconds between the end of the previous answer and this request


class Conversation(msgspec.Struct, frozen=True):
    """Turns one after the other; each request contains the whole history with its answers."""

    at: float  # seconds after the run's begin
    system: str
    turns: tuple[Turn, ...]
    urgency: str = ""  # `x-priority` header of the conversation's requests; "": no header
    key: str = ""  # `x-emulate-key` header: the same random draws in every run
    user: str = ""  # `x-user-id` header of the conversation's requests; "": no header


class Script(msgspec.Struct, frozen=True):
    """Conversations in order of `at`. Requests due within [measure_from, until) are measured."""

    conversations: tuple[Conversation, ...]
    measure_from: float
    until: float  # seconds: no request is sent from this time on

    def sizes(self) -> list[tuple[float, int]]:
        """(prompt tokens, output tokens) of every request, if each request finishes."""
        found = []
        for conversation in self.conversations:
            history = message_tokens(conversation.system) if conversation.system else 0
            for turn in conversation.turns:
                history += message_tokens(turn.text)
                found.append((history + ROLE_TOKENS, turn.output_tokens))
                history += ROLE_TOKENS + turn.output_tokens
        return found

    def reusable(self) -> list[float]:
        """The prompt tokens of each request, in the order of `sizes`, that an earlier request sent.

        Conversations count in order of `at`; the overlap of concurrent conversations is ignored.
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


# The emulated engines' tokenizer: four bytes per token. Every message is padded to whole tokens
# after its role marker (`<|user|>` and similar take two to four tokens).
TOKEN_BYTES = 4
ROLE_TOKENS = 3


def message_tokens(text: str) -> int:
    return ROLE_TOKENS + -(-len(text.encode()) // TOKEN_BYTES)
