"""A request of the emulated server: a request of the engine core, its output and its callbacks.

This module must never know the format of the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from router.lab.emulator.core.engine_core import Request


class Job(Request):
    """One request. Its future `done` gets True at its end, or False if a fault ends it early."""

    __slots__ = (
        "adapter",
        "cut_after",
        "done",
        "finish_reason",
        "first_token_at",
        "is_left",
        "on_token",
        "output",
        "sent",
        "stop_string",
    )

    def __init__(
        self,
        id: str,
        prompt_tokens: int,
        output: bytes,
        output_tokens: int,
        finish_reason: str,
        block_hashes: Sequence[int] = (),
        priority: int = 0,
        token_ids: Sequence[int] = (),
        cache_salt: str | None = None,
        stop_string: str | None = None,
    ) -> None:
        super().__init__(
            id, prompt_tokens, output_tokens, block_hashes, priority, token_ids, cache_salt
        )
        self.adapter = ""  # the LoRA adapter that the request uses; empty: none
        self.output = output
        self.finish_reason = finish_reason
        self.stop_string = stop_string  # the stop string that ended the output
        self.on_token: Callable[[int], None] | None = None  # called with the token's index
        self.done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.sent = 0
        self.first_token_at = 0.0
        self.cut_after: int | None = None  # number of tokens after which a fault ends the job
        self.is_left = False  # True: the client has left, so the job is aborted at its next token
