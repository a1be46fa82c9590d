"""Reads the durations that a client states in its header fields: its timeout, and its SLOs.

    x-request-timeout-ms            this router's own header: milliseconds, such as `30000`; `0`
                                    means no time is left
    grpc-timeout                    gRPC over HTTP/2: up to 8 digits and a unit, such as `30S`
    x-envoy-expected-rq-timeout-ms  Envoy's router filter: the milliseconds until Envoy ends the
                                    request, even in the middle of a response
    x-stainless-read-timeout        OpenAI's and Anthropic's Python SDKs: seconds until the first
                                    byte of a response, by default 600
    x-stainless-timeout             the same from their SDKs in other languages
    x-slo-ttft-ms, x-slo-tpot-ms    the time to the first token, and per token after it, in
                                    milliseconds; `dispatch/slos.py` limits them by class

The values are durations, not times of day, because the clocks of two hosts differ. An unreadable
value of this router's own headers is an error, because the client would otherwise rely on a time
that does not apply. The other fields are meant for other software; an unreadable value is ignored.

Must never: read a clock.
"""

from __future__ import annotations

import re
from math import inf
from typing import Final

from router.core.errors import Reason, RouterError

# Up to twenty digits, so that the largest 64-bit integer is valid: clients send it for "no limit".
_TIMEOUT_MS: Final = re.compile(rb"-?[0-9]{1,20}(?:\.[0-9]{1,9})?")
# Nine digits of milliseconds are eleven days. Three decimals allow one microsecond.
_SLO_MS: Final = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{1,3})?")
_SECONDS: Final = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_GRPC: Final = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


def timeout(value: bytes) -> float:
    """Return the seconds of an x-request-timeout-ms value. 0 or less means that no time is left.

    Raises RouterError (BAD_HEADER) if the value is unreadable.
    """
    if _TIMEOUT_MS.fullmatch(value) is None:
        raise RouterError(
            Reason.BAD_HEADER,
            "the header x-request-timeout-ms must be milliseconds, such as 30000",
        )
    return float(value) / 1000.0


def slo(name: str, value: bytes) -> float:
    """Return the seconds of the SLO in the header `name`, above 0.

    Raises RouterError (BAD_HEADER) if the value is invalid.
    """
    slo_s = float(value) / 1000.0 if _SLO_MS.fullmatch(value) is not None else 0.0
    if slo_s <= 0.0:
        raise RouterError(
            Reason.BAD_HEADER, f"the header {name} must be milliseconds above 0, such as 500"
        )
    return slo_s


def envoy(value: bytes) -> float:
    """Return the seconds of an x-envoy-expected-rq-timeout-ms value; infinity if it is 0 or
    unreadable.
    """
    return seconds(value) / 1000.0


def grpc(value: bytes) -> float:
    """Return the seconds of a grpc-timeout value; infinity if it is 0 or unreadable."""
    found = _GRPC.fullmatch(value)
    if found is None:
        return inf
    return float(found.group(1)) * _UNITS[found.group(2)] or inf


def seconds(value: bytes) -> float:
    """Return the number of seconds in `value`; infinity if it is 0 or unreadable."""
    return (float(value) or inf) if _SECONDS.fullmatch(value) is not None else inf
