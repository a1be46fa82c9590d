"""A client's stated output size: only an estimate for the queue, never changed in the body."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from router.admission.runs import MOST_PREDICTED
from router.config.model import Keys, Queue, Reservations
from tests.addons.needed import needs
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat_body, completion, post_json, request, without_priority
from tests.harness.queueing import ONE, Turnstile, queue, send
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import Router, running, virtual_scenario

PATH = "/v1/chat/completions"
LARGEST = 2**63
ODD = {
    "negative": b"-1",
    "zero": b"0",
    "two_to_63": b"9223372036854775808",
    "huge": b"1" + b"0" * 300,
    "string": b'"many"',
    "fraction": b"1.5",
    "bool": b"true",
    "null": b"null",
    "list": b"[1000]",
}
# The estimate is in output tokens. Without a stated size, the estimate is learned from earlier
# answers.
MOST_CHOICES, USUAL = 1024, 200


def ticket_of(router: Router) -> Any:
    """The ticket of the only waiting request."""
    driver = router.app.parts.queue
    assert driver is not None
    (only,) = driver.pools.queues
    (ticket,) = only.wait_lists.tickets()
    return ticket


def body_of(**raw: bytes) -> bytes:
    """A chat request with these members, written verbatim."""
    members = b"".join(b',"%b":%b' % (name.encode(), value) for name, value in raw.items())
    return json.dumps(chat_body()).encode()[:-1] + members + b"}"


@needs("reservations")
@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens", "n", "best_of"])
@pytest.mark.parametrize("name", list(ODD))
@virtual_scenario
async def test_odd_numbers_wait_like_others_and_pass_untouched(field: str, name: str) -> None:
    turnstile = Turnstile()
    rules = Queue(enabled=True, reservations=Reservations(enabled=True))
    async with running(turnstile, replica=ONE, queue=rules) as router:
        first = await send(router, "first", queued=False)
        body = body_of(**{field: ODD[name]})
        client = await router.send(post_json(PATH, body))
        await eventually(lambda: router.app.census()["queued"] == 1, "it waits")
        assert 0 <= ticket_of(router).view.output_tokens < LARGEST
        turnstile.open(2)
        for asked in (first, client):
            assert (await asked.recv_response()).status == 200
        assert without_priority(bytes(router.replica.requests[-1].body)) == body


@pytest.mark.parametrize(
    ("members", "output"),
    [
        ({"n": b"100"}, 100 * USUAL),
        ({"n": b"1000"}, MOST_PREDICTED),
        ({"n": b"1000", "max_tokens": b"50"}, 1000 * 50),
        ({"n": b"4", "max_completion_tokens": b"10", "max_tokens": b"99"}, 4 * 99),
        ({"n": b"1000000", "max_tokens": b"2"}, MOST_CHOICES * 2),
        ({"n": b"9223372036854775807"}, MOST_PREDICTED),
        ({"n": b"100", "max_tokens": b"-5"}, 100 * USUAL),
        ({"n": b"100", "max_tokens": b"9223372036854775807"}, 100 * USUAL),
    ],
)
@virtual_scenario
async def test_many_choices_count_as_many_outputs(members: dict[str, bytes], output: int) -> None:
    turnstile = Turnstile()
    async with running(turnstile, replica=ONE, queue=queue()) as router:
        first = await send(router, "first", queued=False)
        client = await router.send(post_json(PATH, body_of(**members)))
        await eventually(lambda: router.app.census()["queued"] == 1, "it waits")
        assert ticket_of(router).view.output_tokens == output
        turnstile.open(2)
        for asked in (first, client):
            assert (await asked.recv_response()).status == 200
        sent = without_priority(bytes(router.replica.requests[-1].body))
        assert sent == body_of(**members)


@virtual_scenario
async def test_a_thousand_choices_cost_their_user_his_next_turns() -> None:
    """The thousand choices run, and their user sends another request. Three requests of another
    user go first."""
    turnstile, go = Turnstile(), asyncio.Event()

    async def behave(connection: ReplicaConnection) -> None:
        while asked := await connection.recv_request():
            body = json.loads(asked.body)
            turnstile.tags.append(body["tag"])
            await (go.wait() if "n" in body else turnstile.permits.acquire())
            await connection.send(completion())

    keys, two = Keys(names_users=True), {"max_inflight": 2}
    async with running(behave, replica=two, queue=Queue(enabled=True), keys=keys) as router:
        clients = [await send(router, "first", queued=False, user=f"{n}") for n in range(2)]
        clients.append(await send(router, "greedy", user="greedy", n=1000))
        clients.append(await send(router, "again", user="greedy"))
        clients += [await send(router, "modest", user="modest") for _ in range(3)]
        turnstile.open(6)
        await eventually(lambda: len(turnstile.tags) == 7, "all are sent")
        go.set()
        for client in clients:
            assert (await client.recv_response()).status == 200
        assert turnstile.tags == [*["first"] * 2, "greedy", *["modest"] * 3, "again"]


@virtual_scenario
async def test_what_is_no_inference_passes_the_queue_by() -> None:
    turnstile = Turnstile()
    async with running(
        turnstile, json_ok, replica=ONE, queue=queue(), policy="round_robin"
    ) as router:
        driver = router.app.parts.queue
        assert driver is not None
        first = await send(router, "first", queued=False)
        answer = await router.ask(request("/v1/models", "x-request-timeout-ms: 0"))
        assert answer.status == 200
        assert not driver.pools.waiting
        turnstile.open()
        assert (await first.recv_response()).status == 200
