"""Our own name in Via: the request is in a forwarding loop."""

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import echo
from tests.harness.messages import request
from tests.harness.running import Router, assert_error, routed


@pytest.mark.parametrize(
    "via", ["1.1 hedgerow", "1.0 other, 1.1 hedgerow (note)", "HTTP/1.1 hedgerow"]
)
@routed(echo)
async def test_it_is_refused(router: Router, via: str) -> None:
    assert_error(await router.ask(request("/plain", f"Via: {via}")), Reason.LOOP)
    assert await router.reason() == "loop"
    assert not router.replica.requests


@routed(echo)
async def test_others_are_kept_and_we_come_last(router: Router) -> None:
    assert (await router.ask(request("/plain", "Via: 1.1 hedgerows, 1.0 x"))).status == 200
    via = ", ".join(router.replica.requests[0].all("via"))
    assert via.split(", ") == ["1.1 hedgerows", "1.0 x", "1.1 hedgerow"]
