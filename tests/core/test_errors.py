"""The end reasons: their names, and which party a status blames."""

import pytest

from router.core.errors import Reason, RouterError, Source


@pytest.mark.parametrize("reason", list(Reason))
def test_a_server_error_is_never_blamed_on_the_client(reason: Reason) -> None:
    assert reason.value == str(reason) == reason.name.lower()
    # An unsupported method, a wrong version or a forwarding loop is still the client's error.
    asked_wrongly = {
        Reason.BAD_TRANSFER_ENCODING,
        Reason.METHOD_UNKNOWN,
        Reason.VERSION_NOT_SUPPORTED,
        Reason.HTTP2_NOT_SERVED,
        Reason.LOOP,
    }
    if reason.status >= 500:
        assert (reason.source is Source.CLIENT) == (reason in asked_wrongly)


def test_an_error_carries_its_reason_status_and_blame() -> None:
    err = RouterError(Reason.NO_REPLICA, "none", retry_after_s=2)
    assert (err.status, err.source, err.retry_after_s) == (503, Source.ROUTER, 2)
    assert RouterError(Reason.SERVER_ERROR, "said so", status=500).status == 500
    assert str(err) == err.message == "none"
