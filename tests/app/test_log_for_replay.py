"""The access log has what a replay needs of each request, and never text of its prompt."""

import base64
import json

import pytest

from router.config.model import Keys, Queue
from router.intake.body import MAX_MODEL
from router.observe.log.access_log import TEXT_CHARS_MAX
from tests.harness.behaviours import hang, json_ok
from tests.harness.messages import chat, post_json
from tests.harness.replica import eventually
from tests.harness.running import Line, running, scenario

PROMPT = "a secret that nobody may read in a log, " * 60  # four blocks of 512 bytes and a remainder


async def logged(
    prompt: str = PROMPT, log: dict[str, object] | None = None, **fields: object
) -> list[Line]:
    """The log lines of two equal requests."""
    body = {"model": "m", "messages": [{"role": "user", "content": prompt}], **fields}
    async with running(json_ok, access_log=log or {}) as router:
        client = await router.client()
        for _ in range(2):
            headers = ("Authorization: Bearer k-1", "X-Session-Id: s-1", "X-Priority: low")
            await client.send(post_json("/v1/chat/completions", body, *headers))
            assert (await client.recv_response()).status == 200
        lines = await router.log(2)
    text = json.dumps(lines)
    assert "secret" not in text and "k-1" not in text and "s-1" not in text
    return lines


@scenario
async def test_equal_requests_have_equal_hashes() -> None:
    first, second = await logged()
    for name in ("tenant", "session", "blocks", "class", "estimated_tokens"):
        assert first[name] == second[name]
    assert len(base64.b64decode(first["blocks"])) == 2 * 6
    assert first["class"] == "low"
    assert 400 < first["estimated_tokens"] < 800


@scenario
async def test_as_many_blocks_as_asked_for() -> None:
    first, _ = await logged(log={"blocks": 1})
    assert len(base64.b64decode(first["blocks"])) == 1 * 6
    first, _ = await logged(log={"blocks": 0})
    assert "blocks" not in first


@scenario
async def test_another_prompt_begins_as_this_one_does() -> None:
    (mine, _), (other, _) = (
        await logged(log={"salt": "x"}),
        await logged(PROMPT[:1500] + "and then something else " * 60, log={"salt": "x"}),
    )
    one, two = base64.b64decode(mine["blocks"]), base64.b64decode(other["blocks"])
    assert one[:6] == two[:6]
    assert one[6:] != two[6 : len(one)]


@scenario
async def test_the_bodys_class_comes_first() -> None:
    first, _ = await logged("hi", priority="high")
    assert first["class"] == "high"


@scenario
async def test_long_texts_are_cut() -> None:
    assert MAX_MODEL == TEXT_CHARS_MAX, "a longer model is refused"
    paths = ["/" + "p" * 1_000, "/%C3%A9" + "%C3%A9" * 300, "/v1/sleep/" + "x" * 1_000]
    async with running(json_ok, access_log={}) as router:
        client = await router.client()
        for path in paths:
            await client.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            await client.recv_response()
        lines = await router.log(3)
    shown = ["/" + "p" * 255, "é" * 255, ("/v1/sleep/" + "x" * 1_000)[:256]]
    assert [line["path"].lstrip("/") for line in lines] == [text.lstrip("/") for text in shown]


QUIET = "a poll would forget what the test says of the replica"


async def asked(*fields: str, **body: object) -> Line:
    """The log line of one request at a replica with 3 slots and 9,000 tokens of cache."""
    async with running(json_ok, quiet_control_plane=QUIET) as router:
        replica = router.app.parts.fleet.replicas["r0"]
        replica.slots, replica.kv_tokens = 3, 9000
        await router.ask(chat(*fields, **body), "POST")
        (line,) = await router.log()
        return line


@scenario
async def test_what_the_client_asked_for() -> None:
    line = await asked(
        "x-priority: 2.3", "x-hedge: ON", "x-request-timeout-ms: 8500", max_completion_tokens=77
    )
    assert (line["class"], line["number"]) == ("normal", 2.3)
    assert (line["hedge"], line["max_tokens"]) == ("on", 77)
    assert line["deadline_ms"] == pytest.approx(8500.0)
    assert (await asked("x-hedge: off"))["hedge"] == "off"


@scenario
async def test_what_the_router_knew_of_the_replica() -> None:
    line = await asked()
    assert (line["slots"], line["kv_tokens"]) == (3, 9000)


@scenario
async def test_disabled_fields_take_no_space() -> None:
    line = await asked("x-priority: high", "x-hedge: maybe")
    assert line["class"] == "high"
    assert not {"number", "hedge", "max_tokens", "deadline_ms"} & set(line)


@scenario
async def test_a_deadline_that_has_passed_on_arrival() -> None:
    line = await asked("x-request-timeout-ms: 0")
    assert (line["reason"], line["deadline_ms"]) == ("deadline_passed", 0.0)
    assert not {"slots", "kv_tokens"} & set(line)


@scenario
async def test_the_number_is_the_one_before_steps() -> None:
    """A user's second request is less urgent while the first one runs. The log has the number
    before this step, because a replay computes the step itself.
    """
    async with running(hang, queue=Queue(policy="fifo")) as router:
        clients = [await router.client() for _ in range(2)]
        exchanges = router.app.parts.dispatcher.exchanges
        for count, client in enumerate(clients, 1):
            await client.send(chat("Authorization: Bearer one", "x-priority: 1.2"))
            await eventually(lambda count=count: len(exchanges) == count, f"{count} requests")
        numbers = sorted(exchange.urgency.number for exchange in exchanges)
        assert numbers[0] == 1.2 < numbers[1]
        for client in clients:
            client.close()
        assert [line["number"] for line in await router.log(2)] == [1.2, 1.2]


@scenario
async def test_a_user_is_a_hash_and_one_within_its_tenant() -> None:
    async with running(json_ok, keys=Keys(names_users=True)) as router:
        for user in ("ann", "ann", "bob"):
            assert (await router.ask(chat(f"x-user-id: {user}"))).status == 200
        users = [line["user"] for line in await router.log(3)]
    assert users[0] == users[1] != users[2] and "ann" not in users
