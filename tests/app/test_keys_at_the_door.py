"""API keys over sockets: 400, 401, 403, 404, 429, and the release of everything reserved for a
request.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from router.config.keys import KeyLine, hash_of, line_of
from router.config.model import Keys, Prefix, Priority, Queue
from router.core.errors import ConfigError, Reason
from router.dispatch.hedging.hedger import ASKED
from tests.harness.behaviours import echo, json_ok
from tests.harness.messages import chat, chat_body, completion, post_json, request
from tests.harness.reading import Response
from tests.harness.replica import Behaviour, ReplicaConnection, eventually
from tests.harness.running import Router, assert_error, running, scenario

BEARER = "Authorization: Bearer acme-key"
OTHER = "Authorization: Bearer umbrella-key"


def file_of(folder: Path, *lines: KeyLine) -> str:
    path = folder / "keys.jsonl"
    path.write_text("".join(line_of(line) + "\n" for line in lines))
    return str(path)


def acme(**fields: Any) -> KeyLine:
    return KeyLine(**{"name": "acme", "hash": hash_of(b"acme-key"), **fields})


def umbrella(**fields: Any) -> KeyLine:
    return KeyLine(**{"name": "umbrella", "hash": hash_of(b"umbrella-key"), **fields})


def parts(router: Router) -> Any:
    return router.app.parts.dispatcher.tenants


# 400


@pytest.mark.parametrize(
    "value", [b"true", b"[]", b'"urgent!"', b"1e400", b'{"a":1}', b'""', b"-1e999", b"NaN"]
)
@scenario
async def test_an_invalid_priority_is_refused_and_the_allowed_values_are_listed(
    value: bytes,
) -> None:
    async with running(json_ok) as router:
        body = b'{"model":"m","messages":[],"priority":%b}' % value
        answer = await router.ask(post_json("/v1/chat/completions", body), "POST")
        assert_error(answer, Reason.BAD_PRIORITY, 400)
        assert answer.error()["param"] == "priority"
        assert "critical, high, normal, low, batch" in answer.error()["message"]
        assert await router.reason() == "bad_priority"
        assert router.replica.requests == []


@scenario
async def test_a_bad_header_is_refused_too() -> None:
    async with running(json_ok) as router:
        answer = await router.ask(chat("x-priority: very"), "POST")
        assert_error(answer, Reason.BAD_PRIORITY, 400)


@scenario
async def test_a_request_that_is_not_inference_has_no_priority() -> None:
    async with running(echo) as router:
        body = b'{"model":"m","priority":"very"}'
        assert (await router.ask(post_json("/v1/files", body), "POST")).status == 200
        (forwarded,) = router.replica.requests
        assert bytes(forwarded.body) == body


# 401


@scenario
async def test_required_keys_are_enforced(tmp_path: Path) -> None:
    keys = Keys(file=file_of(tmp_path, acme()), required=True)
    async with running(json_ok, keys=keys) as router:
        for wrong in ((), ("Authorization: Bearer guess",), ("x-api-key: guess",)):
            for data in (chat(*wrong), request("/v1/models", *wrong)):
                answer = await router.ask(data)
                assert_error(answer, Reason.KEY_REQUIRED, 401)
                assert answer.error()["type"] == "authentication_error"
                assert answer.header("www-authenticate") == "Bearer"
        single = ("x-api-key: acme-key", "Api-Key: acme-key", "x-goog-api-key: acme-key")
        for right in (BEARER, *single):
            assert (await router.ask(chat(right), "POST")).status == 200
            assert (await router.ask(request("/v1/models", right))).status == 200


@scenario
async def test_a_body_from_an_unknown_client_is_not_read(tmp_path: Path) -> None:
    keys = Keys(file=file_of(tmp_path, acme()), required=True)
    async with running(json_ok, keys=keys) as router:
        client = await router.client()
        whole = chat()
        await client.send(whole[: whole.index(b"\r\n\r\n") + 4])
        assert_error(await client.recv_response("POST"), Reason.KEY_REQUIRED, 401)


@scenario
async def test_if_keys_are_optional_an_unknown_key_is_accepted(tmp_path: Path) -> None:
    keys = Keys(file=file_of(tmp_path, acme(tier="enterprise")))
    async with running(json_ok, keys=keys) as router:
        for line in ("Authorization: Bearer guess", BEARER):
            assert (await router.ask(chat(line), "POST")).status == 200
        assert [line["class"] for line in await router.log(2)] == ["normal", "high"]


@pytest.mark.parametrize("forward", [False, True])
@scenario
async def test_a_clients_key_is_forwarded_only_if_configured(tmp_path: Path, forward: bool) -> None:
    keys = Keys(file=file_of(tmp_path, acme()), forward=forward)
    async with running(json_ok, keys=keys) as router:
        names = ("X-Api-Key", "api-key", "x-goog-api-key")
        for name in names:
            await router.ask(chat(BEARER, f"{name}: acme-key"), "POST")
        for name, seen in zip(names, router.replica.requests, strict=True):
            assert seen.all("authorization") == (["Bearer acme-key"] if forward else [])
            assert seen.all(name) == (["acme-key"] if forward else [])


@pytest.mark.parametrize("name", ["x-api-key", "api-key", "x-goog-api-key"])
@scenario
async def test_without_a_keys_file_the_clients_key_is_forwarded(name: str) -> None:
    async with running(json_ok) as router:
        await router.ask(chat(BEARER, f"{name.title()}: acme-key"), "POST")
        (seen,) = router.replica.requests
        assert seen.header("authorization") == "Bearer acme-key"
        assert seen.header(name) == "acme-key"


# 403, 404


@scenario
async def test_a_key_for_some_models(tmp_path: Path) -> None:
    keys = Keys(file=file_of(tmp_path, acme(models=("other",)), umbrella(models=("m",))))
    async with running(json_ok, keys=keys) as router:
        answer = await router.ask(chat(BEARER), "POST")
        assert_error(answer, Reason.MODEL_NOT_ALLOWED, 403)
        assert answer.error()["param"] == "model"
        body = b'{"messages":[]}'
        answer = await router.ask(post_json("/v1/chat/completions", body, BEARER), "POST")
        assert_error(answer, Reason.MODEL_NOT_ALLOWED, 403)
        answer = await router.ask(post_json("/v1/anything", body, BEARER), "POST")
        assert_error(answer, Reason.MODEL_NOT_ALLOWED, 403)
        assert (await router.ask(chat(OTHER), "POST")).status == 200
        assert (await router.ask(chat(), "POST")).status == 200


@scenario
async def test_a_key_is_shown_its_own_models(tmp_path: Path) -> None:
    keys = Keys(file=file_of(tmp_path, acme(models=("other",)), umbrella(models=("m",))))
    async with running(json_ok, keys=keys) as router:
        shown = {}
        for line in (BEARER, OTHER):
            answer = await router.ask(request("/v1/models", line))
            shown[line] = [entry["id"] for entry in answer.json()["data"]]
        assert shown == {BEARER: [], OTHER: ["m"]}
        answer = await router.ask(request("/v1/models/m", BEARER))
        assert_error(answer, Reason.MODEL_NOT_FOUND, 404)
        assert (await router.ask(request("/v1/models/m", OTHER))).status == 200


# 429


def gated(gate: asyncio.Event) -> Behaviour:
    async def behave(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await gate.wait()
            await connection.send(completion())

    return behave


@scenario
async def test_a_concurrency_slot_is_released_at_the_end_and_at_a_disconnect(
    tmp_path: Path,
) -> None:
    gate = asyncio.Event()
    keys = Keys(file=file_of(tmp_path, acme(concurrency=2), umbrella()))
    no_queue = Queue(enabled=False)
    async with running(gated(gate), queue=no_queue, keys=keys) as router:
        first, second = await router.client(), await router.client()
        for client in (first, second):
            await client.send(chat(BEARER))
        await eventually(lambda: parts(router).under_way == 2, "both are under way")
        answer = await router.ask(chat(BEARER), "POST")
        assert_error(answer, Reason.KEY_CONCURRENCY, 429)
        assert answer.header("retry-after") == "1"
        assert answer.error()["type"] == "rate_limit_error"
        second.close()
        await eventually(lambda: parts(router).under_way == 1, "one of them left")
        third = await router.client()
        await third.send(chat(BEARER))
        await eventually(lambda: parts(router).under_way == 2, "another took its place")
        gate.set()
        assert (await first.recv_response("POST")).status == 200
        assert (await third.recv_response("POST")).status == 200
        await eventually(lambda: parts(router).under_way == 0, "both are given back")


@scenario
async def test_requests_a_minute(tmp_path: Path) -> None:
    keys = Keys(file=file_of(tmp_path, acme(requests_per_minute=3), umbrella()))
    async with running(json_ok, keys=keys) as router:
        for _ in range(3):
            assert (await router.ask(chat(BEARER), "POST")).status == 200
        answer = await router.ask(chat(BEARER), "POST")
        assert_error(answer, Reason.KEY_REQUESTS, 429)
        assert 15 <= int(answer.header("retry-after") or "") <= 20
        assert (await router.ask(chat(OTHER), "POST")).status == 200
        assert (await router.ask(request("/v1/models", BEARER))).status == 200
        assert [line["reason"] for line in await router.log(6)].count("key_requests") == 1


@scenario
async def test_tokens_a_minute_as_the_engine_counts_them(tmp_path: Path) -> None:
    async def generous(connection: ReplicaConnection) -> None:
        told = json.loads(completion().partition(b"\r\n\r\n")[2])
        told["usage"] = {"prompt_tokens": 500, "completion_tokens": 400, "total_tokens": 900}
        while await connection.recv_request():
            body = json.dumps(told).encode()
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
            await connection.send(head + b"content-length: %d\r\n\r\n" % len(body) + body)

    keys = Keys(file=file_of(tmp_path, acme(tokens_per_minute=600)))
    async with running(generous, keys=keys) as router:
        assert (await router.ask(chat(BEARER), "POST")).status == 200
        answer = await router.ask(chat(BEARER), "POST")
        assert_error(answer, Reason.KEY_TOKENS, 429)
        # Retry-After covers a debt of 300 tokens and the cost of the next request, at ten
        # tokens per second.
        assert 30 <= int(answer.header("retry-after") or "") <= 60


@scenario
async def test_a_request_without_an_answer_costs_no_tokens(tmp_path: Path) -> None:
    async def dies(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        connection.rst()

    keys = Keys(file=file_of(tmp_path, acme(tokens_per_minute=600)))
    async with running(dies, keys=keys) as router:
        assert (await router.ask(chat(BEARER), "POST")).status == 502
        account = parts(router)._accounts["acme"]
        await eventually(lambda: account.under_way == 0, "it is given back")
        assert account.left(1e12)[1] == 600


# A reload.


@scenario
async def test_a_reload_reads_the_file_again_and_keeps_what_was_used(tmp_path: Path) -> None:
    path = Path(file_of(tmp_path, acme(requests_per_minute=2)))
    async with running(json_ok, keys=Keys(file=str(path), required=True)) as router:
        assert [(await router.ask(chat(BEARER))).status for _ in range(3)] == [200, 200, 429]
        assert (await router.ask(chat(OTHER))).status == 401
        file_of(tmp_path, acme(requests_per_minute=2), umbrella())
        await router.app.reload()
        assert (await router.ask(chat(OTHER))).status == 200
        assert (await router.ask(chat(BEARER))).status == 429, "a reload forgives nothing"
        path.write_text("nonsense\n")
        with pytest.raises(ConfigError, match="line 1"):
            await router.app.reload()
        assert (await router.ask(chat(OTHER))).status == 200, "the keys of before stay"
        file_of(tmp_path, umbrella())
        await router.app.reload()
        assert (await router.ask(chat(BEARER))).status == 401


# Further effects of a key.


@scenario
async def test_keys_of_one_tenant_share_a_log_name_and_a_prefix_index(tmp_path: Path) -> None:
    second = KeyLine(name="acme", hash=hash_of(b"acme-key-2"))
    keys = Keys(file=file_of(tmp_path, acme(), second, umbrella()))
    prefix = Prefix(isolate_tenants=True)
    async with running(json_ok, keys=keys, prefix=prefix) as router:
        prompt = "a long prompt " * 200
        for line in (BEARER, "x-api-key: acme-key-2", OTHER):
            body = {**chat_body(), "messages": [{"role": "user", "content": prompt}]}
            await router.ask(post_json("/v1/chat/completions", body, line), "POST")
        lines = await router.log(3)
        assert lines[0]["tenant"] == lines[1]["tenant"] != lines[2]["tenant"]
        assert lines[0]["blocks"] == lines[1]["blocks"] != lines[2]["blocks"]


@scenario
async def test_a_key_may_ask_for_a_second_copy(tmp_path: Path) -> None:
    keys = Keys(file=file_of(tmp_path, acme(may_hedge=True), umbrella()))
    gate = asyncio.Event()
    async with running(gated(gate), keys=keys) as router:
        found = {}
        exchanges = router.app.parts.dispatcher.exchanges
        for line in (BEARER, OTHER):
            client = await router.client()
            await client.send(chat(line, "x-hedge: on"))
            await eventually(lambda: len(exchanges) == 1, "it is under way")
            (exchange,) = exchanges
            found[line] = exchange.hedges_as
            gate.set()
            assert (await client.recv_response("POST")).status == 200
            client.close()
            await router.quiet()
            gate.clear()
        assert found == {BEARER: ASKED, OTHER: ""}


@scenario
async def test_a_tenants_ceiling_is_enforced(tmp_path: Path) -> None:
    keys = Keys(file=file_of(tmp_path, acme(tier="free"), umbrella(ceiling="high")))
    async with running(json_ok, keys=keys, priority=Priority()) as router:
        for line in (BEARER, OTHER):
            answer: Response = await router.ask(chat(line, priority="critical"), "POST")
            assert answer.status == 200
        assert [line["class"] for line in await router.log(2)] == ["low", "high"]
