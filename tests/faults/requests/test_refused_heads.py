"""Heads that are refused for their method or their size, in one read or many."""

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import echo
from tests.harness.cases import Refusal, check_refusals
from tests.harness.messages import request
from tests.harness.running import Router, routed, scenario

METHODS = {
    "CONNECT a:443 HTTP/1.1": Reason.METHOD_NOT_ALLOWED,
    "TRACE / HTTP/1.1": Reason.METHOD_NOT_ALLOWED,
    "FOOBAR / HTTP/1.1": Reason.METHOD_UNKNOWN,
    "get / HTTP/1.1": Reason.METHOD_UNKNOWN,
    "Post / HTTP/1.1": Reason.METHOD_UNKNOWN,
    "GETGET / HTTP/1.1": Reason.METHOD_UNKNOWN,
}
LONG = {
    "target": (request("/" + "a" * 9000), Reason.TARGET_TOO_LONG),
    "endless target": (b"GET /" + b"a" * 200_000, Reason.TARGET_TOO_LONG),
    "value": (request("/", "X: " + "a" * 70_000), Reason.HEAD_TOO_LARGE),
    "name": (request("/", "X" * 70_000 + ": a"), Reason.HEAD_TOO_LARGE),
    "endless value": (request("/")[:-2] + b"X: " + b"a" * 200_000, Reason.HEAD_TOO_LARGE),
    "fields": (request("/", *(f"X-{n}: a" for n in range(101))), Reason.HEAD_TOO_LARGE),
    "many fields": (request("/", *(f"X-{n}: a" for n in range(5000))), Reason.HEAD_TOO_LARGE),
}


@scenario
async def test_methods_that_are_not_served() -> None:
    await check_refusals(
        {
            line: Refusal(
                sent=f"{line}\r\nHost: a\r\n\r\n".encode(), status=reason.status, code=reason.value
            )
            for line, reason in METHODS.items()
        }
    )


@pytest.mark.parametrize("piece", [1_000_000, 997])
@scenario
async def test_heads_above_a_limit(piece: int) -> None:
    await check_refusals(
        {
            name: Refusal(
                sent=tuple(data[at : at + piece] for at in range(0, len(data), piece)),
                status=reason.status,
                code=reason.value,
            )
            for name, (data, reason) in LONG.items()
        }
    )


@routed(echo)
async def test_a_head_just_within_the_limits(router: Router) -> None:
    path = "/" + "a" * 7000
    fields = [f"X-{n}: {'v' * 400}" for n in range(95)]
    assert (await router.ask(request(path, *fields))).json()["target"] == path


@routed(echo)
async def test_methods_that_pass(router: Router) -> None:
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        answer = await router.ask(request("/plain", method=method))
        assert answer.json()["method"] == method
