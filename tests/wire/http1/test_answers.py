"""The router's own answers, parsed by an independent parser."""

import pytest

from router.core.errors import Reason, RouterError
from router.wire.http1 import answers
from tests.harness.reading import read_response


@pytest.mark.parametrize(
    "reason", [r for r in Reason if r not in (Reason.OK, Reason.HTTP2_NOT_SERVED)]
)
@pytest.mark.parametrize("keep_alive", [True, False])
def test_every_error_is_a_whole_openai_shaped_response(reason: Reason, keep_alive: bool) -> None:
    err = RouterError(reason, 'say "it"\n\u00e9', param="model", retry_after_s=3)
    data = answers.error_response(err, keep_alive=keep_alive, request_id="r-1")
    found = read_response(data)
    assert found is not None
    assert found.complete
    assert found.status == err.status
    error = found.error()
    assert (error["code"], error["message"], error["param"]) == (reason.value, err.message, "model")
    assert error["type"]
    assert found.header("retry-after") == "3"
    assert found.header("x-request-id") == "r-1"
    assert found.header("date")
    if reason is Reason.UPGRADE_NOT_SERVED:
        assert (found.header("upgrade"), found.header("connection")) == (
            "HTTP/1.1",
            "close, upgrade",
        )
    else:
        assert found.header("upgrade") is None
        assert found.header("connection") == (None if keep_alive else "close")
    assert (found.header("allow") is not None) == (reason is Reason.METHOD_NOT_ALLOWED)


def test_an_answer_to_head_has_no_body() -> None:
    err = RouterError(Reason.NO_REPLICA, "none")
    data = answers.error_response(err, keep_alive=True, head_only=True)
    found = read_response(data, "HEAD")
    assert found is not None
    assert found.complete
    assert found.body == b""
    assert int(found.header("content-length") or 0) == len(
        read_response(answers.error_response(err, keep_alive=True)).body
    )
    assert data.endswith(b"\r\n\r\n")
