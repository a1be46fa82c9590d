"""The prefill cost of a prompt: its tokens, and its tokens without the cached ones.

Both numbers are estimates. Tokens come from the bytes of the prompt; cached blocks come from the
requests that were sent to a replica. The results are never negative.
"""

from __future__ import annotations

from policies.facts import RequestView


def prompt_tokens(view: RequestView) -> float:
    """Return the estimated tokens of the whole prompt; without an estimate, the tokens of its
    blocks."""
    return view.prompt_tokens or len(view.blocks) * view.block_tokens


def uncached_tokens(view: RequestView, blocks: int) -> float:
    """Return the estimated tokens to prefill if the first `blocks` blocks are cached."""
    return max(prompt_tokens(view) - blocks * view.block_tokens, 0.0)
