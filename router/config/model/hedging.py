"""Declares the section `hedging`: second copies of requests."""

from __future__ import annotations

from typing import Any

from router.config.model.setting_types import CountOrNone, Frozen, SecondsOrOff, Share


class Hedging(Frozen, frozen=True):
    """When a request is hedged: a second copy is sent to another replica, and the first response
    is used.
    """

    policy: str = "adaptive"  # The hedging policy.
    options: dict[str, Any] = {}  # The policy's options.
    # Send no second copies, but count how many would have been sent and how much time they save.
    dry_run: bool = False
    # The priority classes whose requests may be hedged.
    classes: tuple[str, ...] = ("critical", "high")
    # The longest time from the dispatch of a class's request to its copy, for single classes. 0s:
    # both copies are sent at once. The policy may send the copy earlier.
    delay: dict[str, SecondsOrOff] = {}
    # Let clients ask for hedging with `x-hedge: on`. `x-hedge: off` is always obeyed.
    by_header: bool = False
    # Maximum share of all uncached prompt tokens that may be tokens of second copies. Copies at
    # idle replicas do not count in this share. 0: no copies, not even at idle replicas.
    budget: Share = 0.05
    # No second copy is sent while the utilisation of the replicas is above this share.
    utilisation: Share = 0.7
    kv_usage: Share = 0.9  # A replica whose KV cache is fuller than this gets no second copy.
    # A request with more uncached prompt tokens than this is not hedged. 0: no limit.
    prompt_tokens: CountOrNone = 0
    choices: bool = False  # Also hedge requests for several choices (`n` above 1).
