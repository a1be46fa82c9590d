"""A proxy in front of an engine compresses answers if the request allows it; the router reads them.

Injected counts, the client's name for the model, errors and early streams need plain answers.
"""

import gzip
import json

import pytest

from tests.harness.messages import COMPLETION, chat, post_json, request, response
from tests.harness.replica import ReplicaConnection
from tests.harness.running import Router, routed

FIELDS = [
    ("Accept-Encoding: gzip, deflate, br, zstd",),
    ("accept-encoding: gzip;q=1.0", "Accept-Encoding: *"),
    (),
]


async def compressing(connection: ReplicaConnection) -> None:
    while (got := await connection.recv_request()) is not None:
        body, more = json.dumps(COMPLETION).encode(), ()
        accepted = [value for name, value in got.headers if name == "accept-encoding"]
        if accepted != ["identity"]:
            body, more = gzip.compress(body), ("Content-Encoding: gzip",)
        await connection.send(response(200, *more, body=body))


@pytest.mark.parametrize("fields", FIELDS)
@routed(compressing)
async def test_inference_gets_plain_answers(router: Router, fields: tuple[str, ...]) -> None:
    usages = router.usages()
    for asked in (
        chat(*fields),
        post_json("/v1/embeddings", {"model": "m", "input": "a"}, *fields),
        post_json("/v1/unknown", {"model": "m"}, *fields),
    ):
        answer = await router.ask(asked)
        assert answer.header("content-encoding") is None
        assert json.loads(answer.body) == COMPLETION
    assert (usages[0].prompt_tokens, usages[0].output_tokens) == (1, 1)


@routed(compressing)
async def test_other_routes_forward_what_the_client_accepts(router: Router) -> None:
    answer = await router.ask(request("/plain", "Accept-Encoding: gzip"))
    assert answer.header("content-encoding") == "gzip"
    await router.ask(request("/plain"))
    first, second = router.replica.requests
    assert first.header("accept-encoding") == "gzip"
    assert second.header("accept-encoding") is None
