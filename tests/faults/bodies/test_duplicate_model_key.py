"""A body with `model` twice: the last one counts, as in the engines' own parsers."""

from tests.harness.behaviours import echo
from tests.harness.messages import post_json
from tests.harness.running import TOLD_NOTHING, Router, routed

PATH = "/v1/chat/completions"


@routed(echo, replica=TOLD_NOTHING)
async def test_the_last_one_wins(router: Router) -> None:
    good = b'{"model": "nobody", "model": "m"}'
    assert (await router.ask(post_json(PATH, good))).json()["body"].encode() == good
    answer = await router.ask(post_json(PATH, b'{"model": "m", "model": "nobody"}'))
    assert answer.status == 404
    assert answer.error()["code"] == "model_not_found"


@routed(echo, replica=TOLD_NOTHING)
async def test_so_does_an_escaped_spelling(router: Router) -> None:
    answer = await router.ask(post_json(PATH, b'{"model": "m", "mod\\u0065l": "nobody"}'))
    assert answer.status == 404
