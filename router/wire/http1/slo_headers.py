"""Reads the SLOs that a client states in its header fields.

    x-slo-ttft-ms  the time from the arrival to the first token, in milliseconds, such as `500`
    x-slo-tpot-ms  the time per output token after the first, in milliseconds, such as `40`

An unreadable value is an error, because the client would otherwise rely on an SLO that does not
apply. `dispatch/slos.py` limits a value to the request's class.

Must never: know a class.
"""

from __future__ import annotations

import re
from typing import Final

from router.core.errors import Reason, RouterError

# Up to nine digits are eleven days. A value is at least a microsecond.
_MILLISECONDS: Final = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{1,3})?")


def of_client(name: bytes, value: bytes) -> float:
    """Return the seconds, above 0, of the header `name`. Raises RouterError (BAD_HEADER)."""
    slo_s = float(value) / 1000.0 if _MILLISECONDS.fullmatch(value) is not None else 0.0
    if slo_s <= 0.0:
        raise RouterError(
            Reason.BAD_HEADER,
            f"the header {name.decode('ascii')} must be milliseconds above 0, such as 500",
        )
    return slo_s
