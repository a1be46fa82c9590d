"""Attacks that cost a client few bytes: the work, memory and open files of the router are bounded.

Several of them are harmless as one connection. So they come from many connections at once, which
the event loop serves in one turn.
"""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from router.config.keys import KeyLine, ModelBudgets, line_of
from router.core.errors import Reason
from router.observe.admin.connections import MOST
from tests.abuse.hostile import Answer, Client
from tests.abuse.recipe import Recipes, ask, at_once, came, ended, listing
from tests.abuse.victim import BAD, PAIR, PRICE, Victim
from tests.addons.forms import MULTIPART, form
from tests.harness import kit

MIB = 1024 * 1024
LOOP_S = 0.05 * PRICE
RECIPES = Recipes()
recipe = RECIPES.recipe
CHAT = "/v1/chat/completions"
BATCHES = "batches: {enabled: true, folder: '{folder}/b', disk_free: 0}\n"
JSON_CHUNKED = ["host: h", "content-type: application/json", "transfer-encoding: chunked"]


async def together(port: int, *parts: bytes, count: int) -> None:
    """Send the parts over `count` connections, each part over all of them at the same moment."""
    clients = [await kit.RawClient.connect(port) for _ in range(count)]
    try:
        for part in parts:
            await asyncio.gather(*(client.send(part) for client in clients))
            await asyncio.sleep(0.05)
        await asyncio.gather(*(client.recv_response("POST") for client in clients))
    finally:
        for client in clients:
            client.close()


# -- batch files ----------------------------------------------------------------------------------


@recipe(memory=256 * MIB, extra=BATCHES, loop_s=LOOP_S, threads=True)
async def batch_lines_of_many_members(victim: Victim) -> None:
    """Lines of twelve MiB: many members, the same member, a priority among them, and nested lists.

    A decoder holds the interpreter's lock, also in the thread of the batch server.
    """
    many = b",".join(b'"%x":1' % n for n in range(1_300_000))
    for members in (
        many,
        b'"priority":1,' + many,
        b'"n":1,' * 2_000_000 + b'"n":1',
        b'"priority":1,' * 900_000 + b'"n":1',
        b'"x":[' + b"[]," * 4_000_000 + b"1]",
        b'"priority":1,"x":"' + b'\\"' * 6_000_000 + b'"',
    ):
        line = b'{"custom_id":"a","method":"POST","url":"%b","body":{"model":"m",%b}}' % (
            CHAT.encode(),
            members,
        )
        body = form(line)
        fields = ["host: h", MULTIPART, f"content-length: {len(body)}"]
        answer = await ask(victim, kit.head("POST /v1/files HTTP/1.1", fields) + body)
        assert answer.status == 200, answer
        asked = {
            "input_file_id": answer.json()["id"],
            "endpoint": CHAT,
            "completion_window": "24h",
        }
        answer = await ask(victim, kit.post_json("/v1/batches", json.dumps(asked).encode()))
        assert answer.status == 200, answer
        name, state = answer.json()["id"], ""
        while state not in ("completed", "failed"):
            await asyncio.sleep(0.05)
            state = (await ask(victim, kit.request(f"/v1/batches/{name}"))).json()["status"]


@recipe(extra=BATCHES, loop_s=LOOP_S, files=1024)
async def uploads_that_never_end(victim: Victim) -> None:
    """Two hundred and fifty unfinished uploads, of which each needs four open files."""
    fields = ["host: h", MULTIPART, "content-length: 100000"]
    start = kit.head("POST /v1/files HTTP/1.1", fields) + form(b"x" * 1000)[:900]
    clients = [await kit.RawClient.connect(victim.port) for _ in range(250)]
    try:
        await asyncio.gather(*(client.send(start) for client in clients))
        await ended(victim, 1, 503)
        open_files = len(os.listdir(f"/proc/{victim.process.child.pid}/fd"))
        assert open_files < 1024 * 0.9, f"{open_files} open files"
        for path in ("/livez", "/readyz"):
            admin = await kit.RawClient.connect(victim.process.admin_port)
            await admin.send(kit.request(path))
            assert (await admin.recv_response()).status == 200
            admin.close()
    finally:
        for client in clients:
            client.close()


@recipe(extra=BATCHES, loop_s=LOOP_S)
async def uploads_in_chunks_of_one_byte(victim: Victim) -> None:
    file = form(b"x" * 40_000)
    ones = b"".join(b"1\r\n%c\r\n" % byte for byte in file) + kit.LAST_CHUNK
    data = kit.head("POST /v1/files HTTP/1.1", ["host: h", MULTIPART, "transfer-encoding: chunked"])
    await together(victim.port, data, ones, count=20)


# -- heads, early data and bodies -----------------------------------------------------------------

SMALL_TOTAL = "limits: {body: 8388608, bodies_total: 16777216}\n"


@recipe(memory=40 * MIB, extra=SMALL_TOTAL, loop_s=LOOP_S)
async def unfinished_heads_of_sixty_kilobytes(victim: Victim) -> None:
    """A thousand connections hold the beginning of a head. All heads together are limited."""
    start = b"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\n" + b"x-a: b\r\n" * 7500
    await at_once(victim, *[Client(start, reads_s=1.0)] * 1000)
    await ended(victim, 500, 503)


@recipe(memory=48 * MIB, extra=SMALL_TOTAL + "queue: {enabled: false}\n", loop_s=LOOP_S)
async def early_data_behind_a_request(victim: Victim) -> None:
    """Eight hundred requests are answered late; behind each are sixty kilobytes of the next one."""
    victim.hostile.behave = Answer(b"", ends="hangs")
    data = kit.chat() + b"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\n" + b"x-a: b\r\n" * 7000
    await at_once(victim, *[Client(data, reads_s=1.5)] * 800)
    await came(victim, 800)
    ends = await victim.ends("reason")
    refused = sum(n for (_, reason), n in ends.items() if reason == Reason.MEMORY_LIMIT.value)
    assert refused >= 300, ends


@recipe(loop_s=LOOP_S)
async def bodies_in_chunks_of_one_byte_at_once(victim: Victim) -> None:
    """Fifty bodies of 43,000 chunks arrive in one turn of the loop."""
    value = json.dumps(kit.chat_body(user="u" * 43_000)).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in value)
    start = kit.head("POST /v1/chat/completions HTTP/1.1", JSON_CHUNKED)
    await together(victim.port, start, chunks, kit.LAST_CHUNK, count=50)
    await ended(victim, 50, 200, kind="chat")


@recipe(memory=256 * MIB, loop_s=LOOP_S)
async def bodies_that_are_slow_to_decode_at_once(victim: Victim) -> None:
    """Forty bodies of 480 KiB are complete in one turn; decoding one takes up to 40 ms."""
    dense = b'"x":[' + b'{"":1},' * 70_000 + b"1]"
    body = b'{"model":"m","max_tokens":1.0,"priority":1,' + dense + b"}"
    data = kit.post_json("/v1/chat/completions", body)
    await together(victim.port, data[:-1], data[-1:], count=40)
    await ended(victim, 40, 200, kind="chat")


@recipe(memory=256 * MIB, loop_s=LOOP_S)
async def bodies_that_are_scanned_at_once(victim: Victim) -> None:
    """Forty large bodies of tiny members, each of which costs two microseconds."""
    members = b",".join(b'"%x":1' % n for n in range(9_000))
    body = b'{"model":"m",' + members + b',"x":"' + b"x" * 2 * MIB + b'"}'
    data = kit.post_json("/v1/chat/completions", body)
    await together(victim.port, data[:100], data[100:], count=40)


# -- answers --------------------------------------------------------------------------------------


@recipe(memory=64 * MIB, loop_s=LOOP_S)
async def a_long_model_list_that_nobody_reads(victim: Victim) -> None:
    """Two hundred clients ask for a list of 3.8 MB and read nothing."""
    async with listing(victim, [f"{BAD}{n}-{'x' * 850}" for n in range(4_000)], MIB):
        await at_once(victim, *[Client(kit.request("/v1/models"), ends="stops")] * 200)


@recipe(extra="queue: {enabled: false}\n", loop_s=LOOP_S)
async def answers_in_chunks_of_one_byte_at_once(victim: Victim) -> None:
    """Many streams whose replica sends 43,000 chunks of one byte, all at the same moment."""
    events = kit.token("t") * 300
    ones = b"".join(kit.chunk(bytes([byte])) for byte in events)
    asked = 0

    async def behave(connection: kit.ReplicaConnection) -> None:
        nonlocal asked
        await connection.recv_request()
        asked += 1
        await kit.eventually(lambda: asked >= 150, "most requests")
        await connection.send(kit.SSE_HEAD + ones + kit.LAST_CHUNK)

    victim.hostile.behave = behave
    victim.renew()
    await kit.eventually(lambda: all(c.closed for c in victim.hostile.sessions), "new connections")
    await together(victim.port, kit.chat(stream=True), count=160)


# -- the admin port -------------------------------------------------------------------------------


@recipe(loop_s=LOOP_S)
async def bodies_in_chunks_of_one_byte_at_the_admin_port(victim: Victim) -> None:
    """As many connections as the port accepts: requests that are refused, and that are answered."""
    ones = b"1\r\nx\r\n" * 60_000 + kit.LAST_CHUNK
    chunked = ["host: h", "transfer-encoding: chunked"]
    # The last byte of the head comes with the body, so that no request is refused before it.
    for line, fields in (
        ("POST /drain HTTP/1.1", [*chunked, "via: 1.1 proxy"]),
        ("GET /livez HTTP/1.1", chunked),
    ):
        data = kit.head(line, fields) + ones
        await together(victim.process.admin_port, data[:20], data[20:], count=MOST // 2)


# -- the router's own files and fleet -------------------------------------------------------------


@recipe(memory=256 * MIB, extra="keys: {file: '{folder}/keys.jsonl'}\n", loop_s=0.1)
async def a_reload_of_fifty_thousand_keys(victim: Victim) -> None:
    """The file is read in a thread. Each key has limits and budgets, which change; then none."""
    for tokens in (1e6, 2e6, 3e6, None):
        (victim.folder / "keys.jsonl").write_text(
            "".join(
                line_of(
                    KeyLine(
                        name=f"t{n}",
                        hash=f"sha256:{n:064x}",
                        models=(BAD, PAIR),
                        requests_per_minute=600.0,
                        tokens_per_minute=tokens,
                        tokens_per_day=tokens,
                        model_budgets={BAD: ModelBudgets(tokens_per_week=tokens)} if tokens else {},
                    )
                )
                + "\n"
                for n in range(50_000)
            )
        )
        victim.said.clear()
        os.kill(victim.process.child.pid, signal.SIGHUP)
        await kit.eventually(lambda: any('"reloaded"' in line for line in victim.said), "reloaded")


@pytest.mark.parametrize("name", RECIPES.by_name)
def test_bounded_work(name: str, tmp_path: Path) -> None:
    RECIPES.run(name, tmp_path)
