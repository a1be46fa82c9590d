"""The enum of end reasons: every reason has a status and a source."""

from __future__ import annotations

import pytest

from router.core.errors import STATUS, Reason, RouterError, Source, source_of


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_status_and_a_source(reason: Reason) -> None:
    assert 200 <= STATUS[reason] < 600
    assert source_of(reason) in Source
    assert reason.value == reason.name.lower()


@pytest.mark.parametrize("reason", [r for r in Reason if STATUS[r] >= 500])
def test_a_server_error_is_never_blamed_on_the_client(reason: Reason) -> None:
    # An unsupported method, a wrong version or a forwarding loop is still the client's error.
    asked_wrongly = {
        Reason.BAD_TRANSFER_ENCODING,
        Reason.METHOD_UNKNOWN,
        Reason.VERSION_NOT_SUPPORTED,
        Reason.HTTP2_NOT_SERVED,
        Reason.LOOP,
    }
    assert (source_of(reason) is Source.CLIENT) == (reason in asked_wrongly)


def test_an_error_carries_its_reason_status_and_blame() -> None:
    err = RouterError(Reason.NO_REPLICA, "none", retry_after_s=2)
    assert (err.status, err.source, err.retry_after_s) == (503, Source.ROUTER, 2)
    assert RouterError(Reason.SERVER_ERROR, "said so", status=500).status == 500
    assert str(err) == err.message == "none"
