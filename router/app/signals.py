"""Connects the signals of a process with what it does."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping

from router.core import held_signals
from router.observe.events import log_event


def handle(
    terminate: Callable[[signal.Signals], None], orders: Mapping[int, Callable[[], None]]
) -> None:
    """Calls `terminate` for SIGTERM and SIGINT, and obeys each order, also one that was held.

    All other signals are ignored, and logged.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, terminate, number)
    for order, obey in orders.items():
        loop.add_signal_handler(order, obey)
        if order in held_signals.arrived:
            obey()
    for ignored in held_signals.IGNORED:
        loop.add_signal_handler(ignored, _ignore, ignored)


def _ignore(number: int) -> None:
    names = {one.value: one.name for one in signal.Signals}
    name = names.get(number, str(number))
    log_event(logging.WARNING, "signal ignored", key=name, signal=name)
