"""Bodies in one-byte chunks cost time proportional to their bytes.

This includes a request's body, which is sent in one piece, and a stream before its first content.
"""

import asyncio
from time import process_time

from router.wire.turn import SCAN
from tests.harness.behaviours import json_ok
from tests.harness.messages import LAST_CHUNK, SSE_HEAD, chat, chunk, request, token
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import TOLD_NOTHING, running, scenario

SIZE = 200_000


@scenario
async def test_it_is_rejoined() -> None:
    body = b'{"model": "m", "prompt": "' + b"x" * SIZE + b'"}'
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    async with running(json_ok, replica=TOLD_NOTHING) as router:
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


@scenario
async def test_a_first_event_that_comes_in_them() -> None:
    """Each chunk of the first event used to restart the search from the beginning."""
    events = b": " + b"x" * 30_000 + b"\n\n" + token("a")
    data = SSE_HEAD + b"".join(chunk(events[at : at + 1]) for at in range(len(events))) + LAST_CHUNK
    spent = 0.0

    async def behave(connection: ReplicaConnection) -> None:
        nonlocal spent
        while await connection.recv_request():
            spent = process_time()
            connection.sock.setblocking(False)
            await connection.send(data)

    async with running(behave) as router:
        client = await router.send(chat(stream=True))
        await client.recv_until(b'"a"')
        spent = process_time() - spent
        assert spent < 0.4, f"{spent:.2f} s"
        assert (await client.recv_response()).body == events


@scenario
async def test_many_bodies_at_once_share_the_turns_of_the_loop() -> None:
    """Together they need the work of many turns, so most of them are delayed; none is changed."""

    bodies = [b'{"model": "m", "prompt": "%b%d"}' % (b"x" * 8000, n) for n in range(20)]
    asked = request(
        "/v1/completions",
        "Transfer-Encoding: chunked",
        "Content-Type: application/json",
        method="POST",
    )
    async with running(json_ok, replica=TOLD_NOTHING) as router:
        turn = router.app.parts.front.turn
        clients = [await router.client() for _ in bodies]
        for client, body in zip(clients, bodies, strict=True):
            ones = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
            # The next request, which is pipelined, is kept until its turn.
            await client.send(asked + ones + LAST_CHUNK + chat())
        await eventually(lambda: turn.left <= 0, "a turn is used up")
        for client in clients:
            for _ in range(2):
                assert (await client.recv_response("POST")).status == 200
        seen = [bytes(one.body) for one in router.replica.requests if b"prompt" in one.body]
        assert sorted(seen) == sorted(bodies)
        assert router.app.parts.front.held_bytes == 0


@scenario
async def test_many_answers_at_once_share_the_turns_of_the_loop() -> None:
    """All replicas answer at once: streams, whole answers, and answers until the connection ends.

    Each read is parsed only if the turn has work left, so a turn exceeds it by one read at most.
    """
    count, events = 24, token("a") * 400
    ones = b"".join(chunk(events[at : at + 1]) for at in range(len(events)))
    plain = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
    answers = (
        SSE_HEAD + ones + LAST_CHUNK,
        plain + b"Transfer-Encoding: chunked\r\n\r\n" + ones + LAST_CHUNK,
        plain + b"Content-Length: %d\r\n\r\n" % (20 * len(events)) + events * 20,
        plain + b"\r\n" + events * 20,
    )
    asked, lefts = 0, [0]

    def have_all_come() -> bool:
        return asked == count

    async def behave(connection: ReplicaConnection) -> None:
        nonlocal asked
        while await connection.recv_request():
            data = answers[asked % len(answers)]
            asked += 1
            await eventually(have_all_come, "all requests have arrived")
            await connection.send(data)
            if data is answers[-1]:
                connection.fin()

    async with running(behave) as router:
        turn = router.app.parts.front.turn

        def watch() -> None:
            lefts.append(turn.left)
            asyncio.get_running_loop().call_soon(watch)

        clients = [await router.send(chat(stream=True)) for _ in range(count)]
        watch()
        bodies = {bytes((await client.recv_response()).body) for client in clients}
        assert bodies == {events, events * 20}
        assert -256 * 1024 >> SCAN <= min(lefts) <= 0, min(lefts)
