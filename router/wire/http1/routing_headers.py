"""Declares the request headers that change how the router handles a request.

To add a header, add an attribute to `RoutingHeaders`, and a `RoutingHeader` that sets the attribute
to `DECLARED`. `headers` and `request_fields` use the declarations.

Must never: read a clock or a body.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, Final

from router.core.session_names import MAX_SESSION, SESSION_HEADERS
from router.wire.http1 import durations


class RoutingHeaders:
    """The values of the declared headers of one request.

    The object does not change after the head was read, so copies of the head share it.
    """

    __slots__ = (
        "hedge",
        "model",
        "priority",
        "region",
        "sdk_timeout_s",
        "session",
        "session_rank",
        "timeout_s",
        "tpot_slo_s",
        "ttft_slo_s",
        "wants_estimate",
        "wants_region",
    )

    def __init__(self) -> None:
        # The model that the client states for a request whose body the router does not read.
        self.model: bytes | None = None
        self.session: bytes | None = None  # the session key of a conversation
        self.session_rank = len(SESSION_HEADERS)  # the index of its header in `SESSION_HEADERS`
        self.priority: bytes | None = None  # the priority that the client requests
        # The value of x-hedge in lower case: whether a second copy of the request may be sent.
        self.hedge: bytes | None = None
        self.timeout_s = inf  # the client's timeout in seconds
        self.sdk_timeout_s = inf  # the SDK's timeout to the first byte, in seconds
        # The client's SLOs for time to first token and time per output token, in seconds; 0: none.
        self.ttft_slo_s = 0.0
        self.tpot_slo_s = 0.0
        # Whether the response must have a header field with the estimated time to first token.
        self.wants_estimate = False
        self.region: bytes | None = None  # the region that the client prefers
        # Whether the response's head must have the region of the replica.
        self.wants_region = False


class RoutingHeader:
    """The declaration of one routing header, whose value is kept in `RoutingHeaders`."""

    __slots__ = ("_convert", "_field", "is_memoized", "name", "passes")

    def __init__(
        self,
        name: bytes,
        attribute: str,
        convert: Callable[[bytes], Any] = bytes,
        *,
        passes: bool = False,
        is_memoized: bool = True,
    ) -> None:
        """`attribute`: of `RoutingHeaders`. `convert`: makes its value from that of a field."""
        self.name = name  # the header's name in lower case
        self.passes = passes  # whether the field is forwarded to the replica unchanged
        # Many requests have the same value, so `headers.Sorter` remembers the header line.
        self.is_memoized = is_memoized
        self._field = attribute
        self._convert = convert

    def read(self, value: bytes, into: RoutingHeaders) -> None:
        """Reads a field's value. Raises RouterError for an invalid value that must be reported.

        Called for each field of a request with this name, in the order of the fields.
        """
        setattr(into, self._field, self._convert(value))


class _Timeout(RoutingHeader):
    """A timeout. Of several, the shortest counts."""

    def read(self, value: bytes, into: RoutingHeaders) -> None:
        shortest: float = min(getattr(into, self._field), self._convert(value))
        setattr(into, self._field, shortest)


class _Session(RoutingHeader):
    """A session key. The key in the header with the lowest rank counts."""

    __slots__ = ("_rank",)

    def __init__(self, rank: int, name: bytes, passes: bool) -> None:
        super().__init__(name, "session", passes=passes, is_memoized=False)
        self._rank = rank

    def read(self, value: bytes, into: RoutingHeaders) -> None:
        if 0 < len(value) <= MAX_SESSION and self._rank <= into.session_rank:
            into.session, into.session_rank = value, self._rank


def _lower(value: bytes) -> bytes:
    return value.lower()


def _is_true(value: bytes) -> bool:
    return value.lower() == b"true"


DECLARED: Final[tuple[RoutingHeader, ...]] = (
    RoutingHeader(b"x-router-model", "model", is_memoized=False),
    *(_Session(rank, name, passes) for rank, (name, passes, _) in enumerate(SESSION_HEADERS)),
    # x-priority and x-hedge are not forwarded, because a second router behind this router would
    # obey them.
    RoutingHeader(b"x-priority", "priority"),
    RoutingHeader(b"x-hedge", "hedge", _lower),
    # The SLO headers are not forwarded, because the SLOs count from the request's arrival at this
    # router.
    RoutingHeader(b"x-slo-ttft-ms", "ttft_slo_s", partial(durations.slo, "x-slo-ttft-ms")),
    RoutingHeader(b"x-slo-tpot-ms", "tpot_slo_s", partial(durations.slo, "x-slo-tpot-ms")),
    # This header is not forwarded, because a second router behind this router would add its own
    # estimate.
    RoutingHeader(b"x-ttft-estimate", "wants_estimate", _is_true),
    # x-region is not forwarded, because a second router behind this router is nearest to the region
    # that this router has chosen.
    RoutingHeader(b"x-region", "region"),
    RoutingHeader(b"x-served-region", "wants_region", _is_true),
    # x-request-timeout-ms is not forwarded, because the remaining time decreases while the request
    # is in this router.
    _Timeout(b"x-request-timeout-ms", "timeout_s", durations.timeout, is_memoized=False),
    _Timeout(b"x-envoy-expected-rq-timeout-ms", "timeout_s", durations.envoy, passes=True),
    _Timeout(b"grpc-timeout", "timeout_s", durations.grpc, passes=True, is_memoized=False),
    _Timeout(b"x-stainless-timeout", "sdk_timeout_s", durations.seconds, passes=True),
    _Timeout(b"x-stainless-read-timeout", "sdk_timeout_s", durations.seconds, passes=True),
)
