"""Reads the client's timeout from its header fields, as seconds from the request's arrival.

    x-request-timeout-ms            ours: milliseconds, such as `30000`; `0` means no time is left
    grpc-timeout                    gRPC over HTTP/2, "Requests": up to 8 digits and a unit, `30S`
    x-envoy-expected-rq-timeout-ms  Envoy's router filter: when Envoy gives up, even mid-response
    x-stainless-read-timeout        OpenAI's and Anthropic's SDKs: seconds until the first byte of
    x-stainless-timeout             an answer (Python; the others), 600 by default

Times are relative because clocks differ. An unreadable value of our own header is an error, because
the client would otherwise rely on a timeout that does not apply. The other fields are written for
other software; they are used if they are readable.

Must never: read a clock.
"""

from __future__ import annotations

import re
from math import inf
from typing import Final

from router.core.errors import Reason, RouterError

# Up to twenty digits: clients that send the largest integer mean that there is no limit, and so get
# no limit.
_MILLISECONDS: Final = re.compile(rb"-?[0-9]{1,20}(?:\.[0-9]{1,9})?")
_SECONDS: Final = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_GRPC: Final = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


def of_client(value: bytes) -> float:
    """Return the seconds of an x-request-timeout-ms value; 0 or less: no time is left.

    Raises RouterError.
    """
    if _MILLISECONDS.fullmatch(value) is None:
        raise RouterError(
            Reason.BAD_HEADER,
            "the header x-request-timeout-ms must be milliseconds, such as 30000",
        )
    return float(value) / 1000.0


def of_envoy(value: bytes) -> float:
    """Return the seconds of an x-envoy-expected-rq-timeout-ms value; infinity: no limit."""
    return seconds(value) / 1000.0


def of_grpc(value: bytes) -> float:
    """Return the seconds of a grpc-timeout value; infinity: no limit."""
    found = _GRPC.fullmatch(value)
    if found is None:
        return inf
    return float(found.group(1)) * _UNITS[found.group(2)] or inf


def seconds(value: bytes) -> float:
    """Return the text as a number if it is above 0; infinity for everything else."""
    return (float(value) or inf) if _SECONDS.fullmatch(value) is not None else inf
