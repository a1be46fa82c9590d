"""Declares the request headers that change how the router handles a request.

To add a header, add an attribute to `RoutingHeaders`, a subclass of `RoutingHeader` that sets the
attribute, and an instance of it to `DECLARED`. `headers` and `request_fields` use the declarations.

Must never: read a clock or a body.
"""

from __future__ import annotations

from math import inf
from typing import Final

from router.core.session_names import MAX_SESSION, SESSION_HEADERS
from router.wire.http1 import slo_headers, timeout_headers


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
    """The declaration of one routing header.

    `read` is called for each field of a request with this name, in the order of the fields.
    """

    __slots__ = ("is_memoized", "name", "passes")

    def __init__(self, name: bytes, *, passes: bool = False, is_memoized: bool = True) -> None:
        self.name = name  # the header's name in lower case
        self.passes = passes  # whether the field is forwarded to the replica unchanged
        # Many requests have the same value, so `headers.Sorter` remembers the header line.
        self.is_memoized = is_memoized

    def read(self, value: bytes, into: RoutingHeaders) -> None:
        """Reads a field's value. Raises RouterError for an invalid value that must be reported."""
        raise NotImplementedError


class _Model(RoutingHeader):
    def read(self, value: bytes, into: RoutingHeaders) -> None:
        into.model = value


class _Session(RoutingHeader):
    __slots__ = ("_rank",)

    def __init__(self, rank: int, name: bytes, passes: bool) -> None:
        super().__init__(name, passes=passes, is_memoized=False)
        self._rank = rank

    def read(self, value: bytes, into: RoutingHeaders) -> None:
        if 0 < len(value) <= MAX_SESSION and self._rank <= into.session_rank:
            into.session, into.session_rank = value, self._rank


class _Priority(RoutingHeader):
    def read(self, value: bytes, into: RoutingHeaders) -> None:
        into.priority = value


class _Hedge(RoutingHeader):
    def read(self, value: bytes, into: RoutingHeaders) -> None:
        into.hedge = value.lower()


class _Timeout(RoutingHeader):
    def read(self, value: bytes, into: RoutingHeaders) -> None:
        into.timeout_s = min(into.timeout_s, timeout_headers.of_client(value))


class _EnvoyTimeout(RoutingHeader):
    def read(self, value: bytes, into: RoutingHeaders) -> None:
        into.timeout_s = min(into.timeout_s, timeout_headers.of_envoy(value))


class _GrpcTimeout(RoutingHeader):
    def read(self, value: bytes, into: RoutingHeaders) -> None:
        into.timeout_s = min(into.timeout_s, timeout_headers.of_grpc(value))


class _SdkTimeout(RoutingHeader):
    def read(self, value: bytes, into: RoutingHeaders) -> None:
        into.sdk_timeout_s = min(into.sdk_timeout_s, timeout_headers.seconds(value))


class _TtftSlo(RoutingHeader):
    def read(self, value: bytes, into: RoutingHeaders) -> None:
        into.ttft_slo_s = slo_headers.of_client(self.name, value)


class _TpotSlo(RoutingHeader):
    def read(self, value: bytes, into: RoutingHeaders) -> None:
        into.tpot_slo_s = slo_headers.of_client(self.name, value)


class _TtftEstimate(RoutingHeader):
    def read(self, value: bytes, into: RoutingHeaders) -> None:
        into.wants_estimate = value.lower() == b"true"


class _Region(RoutingHeader):
    def read(self, value: bytes, into: RoutingHeaders) -> None:
        into.region = value


class _ServedRegion(RoutingHeader):
    def read(self, value: bytes, into: RoutingHeaders) -> None:
        into.wants_region = value.lower() == b"true"


DECLARED: Final[tuple[RoutingHeader, ...]] = (
    _Model(b"x-router-model", is_memoized=False),
    *(_Session(rank, name, passes) for rank, (name, passes, _) in enumerate(SESSION_HEADERS)),
    # x-priority and x-hedge are not forwarded, because a second router behind this router would
    # obey them.
    _Priority(b"x-priority"),
    _Hedge(b"x-hedge"),
    # The SLO headers are not forwarded, because the SLOs count from the request's arrival at this
    # router.
    _TtftSlo(b"x-slo-ttft-ms"),
    _TpotSlo(b"x-slo-tpot-ms"),
    # This header is not forwarded, because a second router behind this router would add its own
    # estimate.
    _TtftEstimate(b"x-ttft-estimate"),
    # x-region is not forwarded, because a second router behind this router is nearest to the region
    # that this router has chosen.
    _Region(b"x-region"),
    _ServedRegion(b"x-served-region"),
    # x-request-timeout-ms is not forwarded, because the remaining time decreases while the request
    # is in this router.
    _Timeout(b"x-request-timeout-ms", is_memoized=False),
    _EnvoyTimeout(b"x-envoy-expected-rq-timeout-ms", passes=True),
    _GrpcTimeout(b"grpc-timeout", passes=True, is_memoized=False),
    _SdkTimeout(b"x-stainless-timeout", passes=True),
    _SdkTimeout(b"x-stainless-read-timeout", passes=True),
)
