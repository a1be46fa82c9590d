"""Reads the SLOs that a client states in its header fields.

    x-slo-ttft-ms  the time from the arrival to the first token, in milliseconds, such as `500`
    x-slo-tpot-ms  the time per output token after the first, in milliseconds, such as `40`

An unreadable value is an error, because the client would otherwise rely on an SLO that does not
apply. `dispatch/slos.py` limits the value to what the request's priority class allows.

Must never: use a priority class.
"""

from __future__ import annotations

import re
from typing import Final

from router.core.errors import Reason, RouterError

# Nine digits of milliseconds are eleven days. Three decimals allow one microsecond.
_MILLISECONDS: Final = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{1,3})?")


def of_client(name: bytes, value: bytes) -> float:
    """Returns the SLO in the header `name` in seconds, above 0.

    Raises RouterError (BAD_HEADER) if the value is invalid.
    """
    slo_s = float(value) / 1000.0 if _MILLISECONDS.fullmatch(value) is not None else 0.0
    if slo_s <= 0.0:
        raise RouterError(
            Reason.BAD_HEADER,
            f"the header {name.decode('ascii')} must be milliseconds above 0, such as 500",
        )
    return slo_s
