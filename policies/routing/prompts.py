"""What a request's prompt costs a replica: its tokens, and those that a cache spares.

Both are estimates: tokens come from the bytes of the prompt, what a replica holds from what was
sent there. Neither is ever negative.
"""

from __future__ import annotations

from policies.facts import RequestView


def prompt_tokens(view: RequestView) -> float:
    """Estimated tokens of the whole prompt; what its blocks say if nobody has counted them."""
    return view.prompt_tokens or len(view.blocks) * view.block_tokens


def uncached_tokens(view: RequestView, blocks: int) -> float:
    """Estimated tokens to prefill where the first `blocks` blocks are cached."""
    return max(prompt_tokens(view) - blocks * view.block_tokens, 0.0)
