"""The requests of one run, generated before the run begins: conversations and their start times.

A single request is a conversation of one turn. A script can be generated in one process, sent to
another as JSON, and played there against any router. So every router gets the same conversations at
the same times.

`text`: generates text of a given length with little CPU. Two texts differ from the first word on.
"""

from __future__ import annotations

from random import Random

import msgspec

from router.lab.overhead.shapes import filler


class Turn(msgspec.Struct, frozen=True):
    """One request: the user's message and the length of the answer in tokens."""

    text: str
    output_tokens: int
    think_s: float = 0.0  # seconds between the end of the previous answer and this request


class Conversation(msgspec.Struct, frozen=True):
    """Turns one after the other. Each request contains all earlier messages and answers."""

    at: float  # start of the conversation, in seconds since the start of the run
    system: str
    turns: tuple[Turn, ...]
    urgency: str = ""  # `x-priority` header of its requests; if empty, they have no such header
    # `x-emulate-key` header; an emulated engine draws the same random numbers in every run.
    key: str = ""
    user: str = ""  # `x-user-id` header of its requests; if empty, they have no such header


class Script(msgspec.Struct, frozen=True):
    """Conversations in order of `at`. Requests due within [measure_from, until) are measured."""

    conversations: tuple[Conversation, ...]
    measure_from: float
    until: float  # seconds since the start of the run; no request is sent from this time on

    def sizes(self) -> list[tuple[float, int]]:
        """Return (prompt tokens, output tokens) of every request, assuming that none fails."""
        found = []
        for conversation in self.conversations:
            history = message_tokens(conversation.system) if conversation.system else 0
            for turn in conversation.turns:
                history += message_tokens(turn.text)
                found.append((history + ROLE_TOKENS, turn.output_tokens))
                history += ROLE_TOKENS + turn.output_tokens
        return found

    def reusable(self) -> list[float]:
        """Return how many of each request's prompt tokens an earlier request sent, in the order of
        `sizes`.

        Conversations are taken one after the other in order of `at`, as if none ran at the same
        time.
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


# The emulated engines' tokenizer makes a token of every four bytes. Every message is padded to
# whole tokens after its role marker (`<|user|>` and similar take two to four tokens).
TOKEN_BYTES = 4
ROLE_TOKENS = 3


def message_tokens(text: str) -> int:
    return ROLE_TOKENS + -(-len(text.encode()) // TOKEN_BYTES)


_PAGE = filler(1 << 18)


def text(rng: Random, tokens: int, title: str) -> str:
    """Return `tokens` tokens of text that begins with `title`. Different titles share no prefix.

    Two texts with the same `title` may still differ after the title.
    """
    size = tokens * TOKEN_BYTES
    start = rng.randrange(len(_PAGE) - size) if size < len(_PAGE) else 0
    return f"{title}: {_PAGE[start : start + size]}"[:size]
