"""The request headers that change how the router handles a request, each declared once.

To add a header, add a field to `RoutingHeaders`, a subclass of `RoutingHeader` that fills the
field, and an instance to `DECLARED`. Then use the field. `headers` and `request_reader` follow the
declarations.

Must never: read a clock or a body.
"""

from __future__ import annotations

from math import inf
from typing import Final

from router.wire.http1 import slo_headers, timeout_headers


class RoutingHeaders:
    """The values of the declared headers of one request.

    The object does not change after the head is sorted, so copies of the head share it.
    """

    __slots__ = (
        "hedge",
        "model",
        "priority",
        "sdk_timeout_s",
        "session",
        "timeout_s",
        "tpot_slo_s",
        "ttft_slo_s",
        "wants_estimate",
    )

    def __init__(self) -> None:
        # the model that the client names for a body that the router does not read
        self.model: bytes | None = None
        self.session: bytes | None = None  # the session key of a conversation
        self.priority: bytes | None = None  # the priority that the client requests
        self.hedge: bytes | None = None  # whether the client wants a second copy, in lower case
        self.timeout_s = inf  # the client's timeout in seconds
        self.sdk_timeout_s = inf  # the SDK's timeout to the first byte, in seconds
        # The SLOs that the client states, in seconds; 0: none.
        self.ttft_slo_s = 0.0
        self.tpot_slo_s = 0.0
        # Whether the response's head must have the estimated time to first token.
        self.wants_estimate = False


class RoutingHeader:
    """One header.

    `read` is called for each field with the header's name, in the order in which the fields arrive.
    """

    __slots__ = ("is_memoized", "name", "passes")

    def __init__(self, name: bytes, *, passes: bool = False, is_memoized: bool = True) -> None:
        self.name = name  # the header's name in lower case
        self.passes = passes  # the field is forwarded to the replica unchanged
        # The lines of this header repeat from request to request, so the sorter keeps them
        # (`headers.Sorter`).
        self.is_memoized = is_memoized

    def read(self, value: bytes, into: RoutingHeaders) -> None:
        """Reads a field's value. Raises RouterError for an invalid value that must be reported."""
        raise NotImplementedError


class _Model(RoutingHeader):
    def read(self, value: bytes, into: RoutingHeaders) -> None:
        into.model = value


class _Session(RoutingHeader):
    def read(self, value: bytes, into: RoutingHeaders) -> None:
        into.session = value


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


DECLARED: Final[tuple[RoutingHeader, ...]] = (
    _Model(b"x-router-model", is_memoized=False),
    _Session(b"x-session-id", passes=True, is_memoized=False),
    # the field is not forwarded, because a second router behind this one would obey it
    _Priority(b"x-priority"),
    _Hedge(b"x-hedge"),
    # The SLOs count from the arrival at this router, so the fields are not forwarded.
    _TtftSlo(b"x-slo-ttft-ms"),
    _TpotSlo(b"x-slo-tpot-ms"),
    # A second router behind this one would add an estimate of its own, so the field is not
    # forwarded.
    _TtftEstimate(b"x-ttft-estimate"),
    # The remaining time decreases while the request is in this router, so the field is not
    # forwarded.
    _Timeout(b"x-request-timeout-ms", is_memoized=False),
    _EnvoyTimeout(b"x-envoy-expected-rq-timeout-ms", passes=True),
    _GrpcTimeout(b"grpc-timeout", passes=True, is_memoized=False),
    _SdkTimeout(b"x-stainless-timeout", passes=True),
    _SdkTimeout(b"x-stainless-read-timeout", passes=True),
)
