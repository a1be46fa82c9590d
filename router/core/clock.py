"""The clocks of the router. What handles requests gets the time from here or as an argument.

Compiled code reads a `Final` without the search for a name that an imported function needs. `wall`
is no `Final`, so that a test can set the clock to another time.
"""

from __future__ import annotations

import time as _clocks
from typing import Final

_monotonic: Final = _clocks.monotonic
wall = _clocks.time


def monotonic() -> float:
    """Return the seconds of a clock that never goes back. Only differences have a meaning."""
    return _monotonic()


def time() -> float:
    """Return the seconds since 1970. This clock may jump."""
    return wall()
