"""Keeps signals that are no order to stop from ending the process.

The default action of most signals is to end a process at once, and with it all streams. A signal
that orders something during the start is held until the router can act on it (`hold`, `arrived`).
`IGNORED` has the signals that order nothing.

Must never: change how children begin. Handlers end with `exec`, an ignored signal would not.
"""

from __future__ import annotations

import signal
from typing import Final

ORDERS: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# All signals that end a process, except orders to stop, reports of a defect (such as SIGSEGV) and
# limits of the system.
IGNORED: Final[tuple[int, ...]] = (
    signal.SIGQUIT,
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGIO,
    signal.SIGPWR,
    signal.SIGSTKFLT,
    *range(signal.SIGRTMIN, signal.SIGRTMAX + 1),
)

arrived: Final[set[int]] = set()  # The orders that arrived since `hold`.


def hold() -> None:
    """Holds orders from now on, and ignores the other signals. May be called again."""
    for number in (*ORDERS, *IGNORED):
        signal.signal(number, _arrives)


def _arrives(number: int, frame: object) -> None:
    arrived.add(number)
