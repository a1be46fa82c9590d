"""The SLOs that a client states: milliseconds above 0, or an error that says so."""

from __future__ import annotations

import pytest

from router.core.errors import Reason, RouterError
from router.wire.http1.slo_headers import of_client

NAME = b"x-slo-ttft-ms"


@pytest.mark.parametrize(
    ("value", "slo_s"),
    [(b"500", 0.5), (b"0.5", 0.0005), (b"0.001", 1e-6), (b"0", None), (b"0.000", None)]
    + [(bad, None) for bad in (b"", b"-5", b"+5", b"5ms", b"1e3", b"inf", b"nan", b"5.", b".5")]
    + [(b"1_0", None), (b"\xb2", None), (b"1" * 10, None), (b"0.0001", None), (b"1, 2", None)],
)
def test_a_value_in_seconds(value: bytes, slo_s: float | None) -> None:
    if slo_s is not None:
        assert of_client(NAME, value) == slo_s
        return
    with pytest.raises(RouterError, match="x-slo-ttft-ms must be milliseconds above 0") as caught:
        of_client(NAME, value)
    assert caught.value.reason is Reason.BAD_HEADER
    assert caught.value.status == 400
