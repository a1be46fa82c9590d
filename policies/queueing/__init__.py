"""The built-in order policies, one a file; importing this package registers them all."""

from policies.queueing import (
    aging,
    dlpm,
    drr,
    edf,
    fair,
    fifo,
    round_robin,
    shortest,
    slide,
    strict,
)

__all__ = [
    "aging",
    "dlpm",
    "drr",
    "edf",
    "fair",
    "fifo",
    "round_robin",
    "shortest",
    "slide",
    "strict",
]
