"""A large body in one-byte chunks costs in proportion to its bytes, and leaves in one piece."""

from __future__ import annotations

from tests.harness.messages import completion, request
from tests.harness.replica import ReplicaConnection
from tests.harness.running import TOLD_NOTHING, running, scenario

SIZE = 200_000


@scenario
async def test_it_is_rejoined() -> None:
    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(completion())

    body = b'{"model": "m", "prompt": "' + b"x" * SIZE + b'"}'
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    async with running(behave, replica=TOLD_NOTHING) as router:
        asked = request(
            "/v1/completions",
            "Transfer-Encoding: chunked",
            "Content-Type: application/json",
            method="POST",
        )
        answer = await router.ask(asked + chunks)
        assert answer.status == 200
        (seen,) = router.replica.requests
        assert bytes(seen.body) == body
        assert seen.header("content-length") == str(len(body))
        assert len(router.replica.sessions[0].received) < len(body) + 2000
