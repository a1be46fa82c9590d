"""`x-router-model` routes the request that carries it, and no other."""

from tests.harness.behaviours import echo
from tests.harness.messages import request
from tests.harness.running import Router, routed


@routed(echo)
async def test_it_does_not_stick(router: Router) -> None:
    answer = await router.ask(request("/plain", "X-Router-Model: nobody-serves-this"))
    assert answer.status == 404
    assert answer.error()["code"] == "model_not_found"
    assert (await router.ask(request("/plain"))).status == 200
