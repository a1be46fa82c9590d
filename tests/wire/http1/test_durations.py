"""The client's timeout and SLOs from its headers: read once per head, in every format."""

from math import inf

import pytest
from hypothesis import given, strategies as st

from router.core.errors import Reason, RouterError
from router.wire.http1 import durations
from router.wire.http1.heads import RequestHead
from tests.wire.http1.test_request_reader import get, one, refused


def said(*fields: bytes) -> RequestHead:
    return one(get(*fields))[0]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"30000", 30.0),
        (b"1", 0.001),
        (b"1500.5", 1.5005),
        (b"0", 0.0),
        (b"-20", -0.02),
        (b"9223372036854775807", 9223372036854775.807),
    ],
)
def test_our_own_field_is_milliseconds(value: bytes, seconds: float) -> None:
    assert said(b"X-Request-Timeout-Ms: " + value).routing.timeout_s == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"soon",
        b"30s",
        b"1e3",
        b"inf",
        b"nan",
        b"1_000",
        b"0x10",
        b"+5",
        b"--5",
        b"5 5",
        b"9" * 21,
    ],
)
def test_our_own_field_must_be_readable(value: bytes) -> None:
    assert refused(get(b"x-request-timeout-ms: " + value)) is Reason.BAD_HEADER
    with pytest.raises(RouterError, match="x-request-timeout-ms must be milliseconds"):
        durations.timeout(value)


@pytest.mark.parametrize(
    ("field", "timeout_s", "sdk_timeout_s"),
    [
        (b"x-envoy-expected-rq-timeout-ms: 15000", 15.0, inf),
        (b"x-envoy-expected-rq-timeout-ms: 0", inf, inf),  # Envoy's value for no limit
        (b"x-envoy-expected-rq-timeout-ms: soon", inf, inf),
        (b"grpc-timeout: 2S", 2.0, inf),
        (b"grpc-timeout: 1H", 3600.0, inf),
        (b"grpc-timeout: 3M", 180.0, inf),
        (b"grpc-timeout: 250m", 0.25, inf),
        (b"grpc-timeout: 99999999u", 99.999999, inf),
        (b"grpc-timeout: 5000000n", 0.005, inf),
        (b"grpc-timeout: 0S", inf, inf),  # the protocol requires a positive timeout
        (b"grpc-timeout: 999999999S", inf, inf),
        (b"grpc-timeout: 5s", inf, inf),
        (b"x-stainless-read-timeout: 600.0", inf, 600.0),
        (b"x-stainless-timeout: 600", inf, 600.0),
        (b"x-stainless-read-timeout: 0.5", inf, 0.5),
        (b"x-stainless-timeout: NOT_GIVEN", inf, inf),
        (b"x-stainless-timeout: -1", inf, inf),
        (b"x-stainless-timeout: 0", inf, inf),
        (b"x-trace-id: 5", inf, inf),
    ],
)
def test_what_others_say_is_believed_where_it_can_be_and_passes_on(
    field: bytes, timeout_s: float, sdk_timeout_s: float
) -> None:
    head = said(field)
    assert head.routing.timeout_s == pytest.approx(timeout_s)
    assert head.routing.sdk_timeout_s == pytest.approx(sdk_timeout_s)
    assert head.lines == [field]


def test_the_shortest_counts_and_ours_ends_here() -> None:
    head = said(
        b"x-request-timeout-ms: 4000",
        b"grpc-timeout: 3S",
        b"X-Request-Timeout-Ms: 5000",
        b"x-stainless-timeout: 60",
        b"x-stainless-read-timeout: 6",
    )
    assert (head.routing.timeout_s, head.routing.sdk_timeout_s) == (3.0, 6.0)
    assert [line.partition(b":")[0] for line in head.lines] == [
        b"grpc-timeout",
        b"x-stainless-timeout",
        b"x-stainless-read-timeout",
    ]


@given(st.binary(max_size=40))
def test_any_bytes_are_a_time_or_nothing(value: bytes) -> None:
    for read in (durations.envoy, durations.grpc, durations.seconds):
        assert read(value) > 0.0
    try:
        assert abs(durations.timeout(value)) < 1e18
    except RouterError as err:
        assert err.status == 400


@pytest.mark.parametrize(
    ("value", "slo_s"),
    [(b"500", 0.5), (b"0.5", 0.0005), (b"0.001", 1e-6), (b"0", None), (b"0.000", None)]
    + [(bad, None) for bad in (b"", b"-5", b"+5", b"5ms", b"1e3", b"inf", b"nan", b"5.", b".5")]
    + [(b"1_0", None), (b"\xb2", None), (b"1" * 10, None), (b"0.0001", None), (b"1, 2", None)],
)
def test_an_slo_is_milliseconds_above_0(value: bytes, slo_s: float | None) -> None:
    if slo_s is not None:
        assert durations.slo("x-slo-ttft-ms", value) == slo_s
        return
    with pytest.raises(RouterError, match="x-slo-ttft-ms must be milliseconds above 0") as caught:
        durations.slo("x-slo-ttft-ms", value)
    assert caught.value.reason is Reason.BAD_HEADER
    assert caught.value.status == 400
