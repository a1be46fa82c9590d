"""A removed or expired key: its waiting requests are refused at once, and nothing is sent again."""

import time
from pathlib import Path

import pytest

from router.config.keys import KeyLine, KeysProblem, hash_of, line_of, parse_keys
from router.config.model import Keys
from router.core import clock
from router.core.errors import Reason
from tests.app.tenants.acme import ACME
from tests.harness.behaviours import hang, in_turn, json_ok, rst_after_request
from tests.harness.messages import chat
from tests.harness.queueing import ONE, Turnstile, of_each, waiting
from tests.harness.replica import eventually
from tests.harness.running import assert_error, assert_error_event, running, scenario

OTHER = "Authorization: Bearer umbrella-key"
SECOND = "x-api-key: acme-second"


def write(folder: Path, *lines: tuple[str, str, str]) -> Keys:
    """Writes a keys file. Each line is a name, a key and its expiry."""
    path = folder / "keys.jsonl"
    path.write_text(
        "# keys\n"
        + "".join(
            line_of(KeyLine(name=name, hash=hash_of(key.encode()), expires=at)) + "\n"
            for name, key, at in lines
        )
    )
    return Keys(file=str(path))


A, A2, U = ("acme", "acme-key", ""), ("acme", "acme-second", ""), ("umbrella", "umbrella-key", "")


@pytest.mark.parametrize("left", [(U,), (A2, U), (("acme", "acme-key", "2020-01-01"), U)])
@scenario
async def test_waiting_requests_of_a_removed_key_are_refused_at_once(
    tmp_path: Path, left: tuple[tuple[str, str, str], ...]
) -> None:
    """One key of a tenant may be removed, and the tenant's other key be kept."""
    turnstile = Turnstile()
    rules = write(tmp_path, A, A2, U)
    async with running(turnstile, keys=rules, replica=ONE) as router:
        first = await router.client()
        await first.send(chat(ACME))
        await eventually(lambda: len(turnstile.tags) == 1, "the first is served")
        clients = [await router.client() for _ in range(5)]
        for client in clients:
            await client.send(chat(ACME))
        streams = [await router.client() for _ in range(2)]
        for client in streams:
            await client.send(chat(ACME, stream=True))
        others = [await router.client() for _ in range(2)]
        await others[0].send(chat(OTHER))
        await others[1].send(chat(SECOND))
        await eventually(lambda: waiting(router) == 9, "the others wait")
        write(tmp_path, *left)
        await router.app.reload()
        for client in (*clients, *streams):
            assert_error(await client.recv_response("POST"), Reason.KEY_REQUIRED, 401)
        if A2 not in left:
            assert_error(await others.pop().recv_response("POST"), Reason.KEY_REQUIRED, 401)
        assert waiting(router) == len(others)
        # What was sent before is served.
        turnstile.open(1 + len(others))
        for client in (first, *others):
            assert (await client.recv_response("POST")).status == 200


@scenario
async def test_a_request_that_waits_for_a_replica_is_refused(tmp_path: Path) -> None:
    """No replica is up, so the request is not in the queue."""
    rules = write(tmp_path, A, U)
    patient = {"classes": of_each(absent_s=30.0)}
    async with running(hang, keys=rules, **patient) as router:
        await router.replica.stop_listening()
        clients = [await router.client() for _ in range(2)]
        for client in clients:
            await client.send(chat(ACME))
        exchanges = router.app.parts.dispatcher.exchanges
        await eventually(lambda: len(exchanges) == 2, "both wait")
        write(tmp_path, U)
        await router.app.reload()
        for client in clients:
            assert_error(await client.recv_response("POST"), Reason.KEY_REQUIRED, 401)


@scenario
async def test_a_waiting_stream_with_an_early_200_is_ended(tmp_path: Path) -> None:
    rules, early = write(tmp_path, A, U), {"commit_after_s": 0.05}
    async with running(hang, keys=rules, replica=ONE, timeouts=early) as router:
        clients = [await router.client() for _ in range(3)]
        await clients[0].send(chat(ACME, stream=True))
        await router.replica.wait_for_requests(1)
        for client in clients[1:]:
            await client.send(chat(ACME, stream=True))
        await router.answers_early()
        write(tmp_path, U)
        await router.app.reload()
        for client in clients[1:]:
            assert_error_event(await client.recv_response("POST"), Reason.KEY_REQUIRED)
        assert len(router.app.parts.dispatcher.exchanges) == 1


@pytest.mark.parametrize("is_required", [True, False])
@scenario
async def test_without_keys_no_key_is_removed(tmp_path: Path, is_required: bool) -> None:
    turnstile = Turnstile()
    async with running(turnstile, keys=write(tmp_path, A), replica=ONE) as router:
        clients = [await router.client() for _ in range(2)]
        for client in clients:
            await client.send(chat(ACME))
        await eventually(lambda: waiting(router) == 1, "one waits")
        await router.replica.wait_for_requests(1)
        router.change(keys=Keys(file=write(tmp_path).file, required=is_required))
        await router.app.reload()
        turnstile.open(2)
        statuses = [(await client.recv_response("POST")).status for client in clients]
        assert sorted(statuses) == [200, 401 if is_required else 200]


@scenario
async def test_a_request_of_a_removed_key_is_not_sent_again(tmp_path: Path) -> None:
    rules = write(tmp_path, A, U)
    async with running(hang, json_ok, keys=rules, policy="round_robin") as router:
        client = await router.client()
        await client.send(chat(ACME))
        await eventually(lambda: sum(len(r.requests) for r in router.replicas) == 1, "sent")
        at = next(replica for replica in router.replicas if replica.requests)
        write(tmp_path, U)
        await router.app.reload()
        assert len(router.app.parts.dispatcher.exchanges) == 1
        await at.stop()
        answer = await client.recv_response("POST")
        assert answer.status >= 500
        assert sum(len(replica.requests) for replica in router.replicas) == 1


@scenario
async def test_a_request_of_a_kept_key_is_sent_again(tmp_path: Path) -> None:
    rules = write(tmp_path, A, U)
    behave = in_turn(rst_after_request, then=json_ok)
    async with running(behave, json_ok, keys=rules) as router:
        write(tmp_path, A)
        await router.app.reload()
        assert (await router.ask(chat(ACME), "POST")).status == 200


@pytest.mark.parametrize(
    "where", ["in the queue", "for a replica", "as a stream with a 200", "before a reload"]
)
@scenario
async def test_waiting_requests_of_a_key_are_refused_when_it_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """No later request makes the router look at the keys."""
    turnstile = Turnstile()
    at = time.time() + 3600
    expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    lines = ("acme", "acme-key", expires), U
    rules = write(tmp_path, A, U) if "reload" in where else write(tmp_path, *lines)
    settings = {"classes": of_each(absent_s=30.0), "timeouts": {"commit_after_s": 0.05}}
    async with running(turnstile, keys=rules, replica=ONE, **settings) as router:
        busy, client = await router.client(), await router.client()
        if "replica" in where:
            await router.replica.stop_listening()
        else:
            await busy.send(chat(OTHER))
            await eventually(lambda: len(turnstile.tags) == 1, "another is served")
        await client.send(chat(ACME, stream="stream" in where))
        exchanges = router.app.parts.dispatcher.exchanges
        count = 1 if "replica" in where else 2
        await eventually(lambda: len(exchanges) == count, "it waits")
        if "stream" in where:
            await eventually(lambda: any(x.reply.status for x in exchanges), "an early 200")
        if "reload" in where:
            write(tmp_path, *lines)
            await router.app.reload()
        monkeypatch.setattr(clock, "wall", lambda: at + 1.0)
        answer = await client.recv_response("POST")
        if "stream" in where:
            assert_error_event(answer, Reason.KEY_REQUIRED)
        else:
            assert_error(answer, Reason.KEY_REQUIRED, 401)
        if "replica" not in where:
            turnstile.open()
            assert (await busy.recv_response("POST")).status == 200


@pytest.mark.parametrize("is_required", [True, False])
@scenario
async def test_an_expired_key_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_required: bool
) -> None:
    turnstile = Turnstile()
    at = time.time() + 3600
    expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    path = write(tmp_path, ("acme", "acme-key", expires), A2).file
    rules = Keys(file=path, required=is_required)
    async with running(turnstile, keys=rules, replica=ONE) as router:
        clients = [await router.client() for _ in range(2)]
        for client in clients:
            await client.send(chat(ACME))
            await eventually(lambda: len(turnstile.tags) == 1, "the first is served")
        await eventually(lambda: waiting(router) == 1, "the second waits")
        monkeypatch.setattr(clock, "wall", lambda: at + 1.0)
        third = await router.client()
        await third.send(chat(ACME))
        assert_error(await clients[1].recv_response("POST"), Reason.KEY_REQUIRED, 401)
        if is_required:
            assert_error(await third.recv_response("POST"), Reason.KEY_REQUIRED, 401)
        else:
            await eventually(lambda: waiting(router) == 1, "a request without a known key")
            turnstile.open()
        fourth = await router.client()
        await fourth.send(chat(SECOND))
        turnstile.open(2)
        assert (await clients[0].recv_response("POST")).status == 200
        assert (await fourth.recv_response("POST")).status == 200


@pytest.mark.parametrize("text", ["tomorrow", "2026-13-01", "99999-01-01", "1764547200", " "])
def test_an_impossible_expiry_is_refused(text: str) -> None:
    line = line_of(KeyLine(name="acme", hash=hash_of(b"k"), expires=text))
    with pytest.raises(KeysProblem, match=r"line 1: expires: .* is not a date such as 2026-12-31"):
        parse_keys(line.encode())
