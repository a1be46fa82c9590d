"""Known attacks, each against its own router: the harm of one client, tenant or replica to others.

In some proxy, every recipe once blocked the loop, grew memory without bound, or gave one client
another's answer. A recipe that is refused at its first byte proves nothing, so each recipe also
checks that the router processed it.
"""

import asyncio
import gzip
import json
from pathlib import Path

import brotli
import pytest
from backports import zstd

from router.fleet.engines.common.models import MODELS_MOST
from router.intake.body import DECODE_UP_TO, EACH_UP_TO, SCAN_ABOVE
from tests.abuse.hostile import Answer, Client
from tests.abuse.recipe import Recipes, ask, at_once, came, ended, listing
from tests.abuse.victim import BAD, GOOD, PAIR, Victim
from tests.harness import kit

MIB = 1024 * 1024
FORM = "content-type: multipart/form-data; boundary=b"

RECIPES = Recipes()
recipe = RECIPES.recipe


def form(*parts: bytes, length: int | None = None) -> bytes:
    body = b"".join(parts)
    fields = ["host: h", FORM, f"content-length: {len(body) if length is None else length}"]
    return kit.head("POST /v1/audio/transcriptions HTTP/1.1", fields) + body


# -- bodies ---------------------------------------------------------------------------------------


@recipe()
async def trailing_space_byte_by_byte(victim: Victim) -> None:
    """After the JSON value of a body, 20,000 spaces are read one byte at a time."""
    value = json.dumps(kit.chat_body()).encode()
    data = kit.post_json("/v1/chat/completions", value + b" " * 20_000)
    assert (await ask(victim, data, (len(data) - 20_000, 1))).status == 200


@recipe()
async def a_large_body_in_small_pieces(victim: Victim) -> None:
    """A body of four MiB with `model` after the content, sent in pieces of 700 bytes."""
    value = b'{"messages":[{"role":"user","content":"' + b"x" * 4 * MIB + b'"}],"model":"m"}'
    assert (
        await ask(victim, kit.post_json("/v1/chat/completions", value), (700,), 0)
    ).status == 200


@recipe()
async def deep_json(victim: Victim) -> None:
    """A body nested as deep as it is long, in every place where JSON is read."""
    nest = b"[" * MIB
    for value in (
        nest,
        b'{"model":"m","messages":' + nest,
        b'{"model":' + nest + b"]" * MIB + b"}",
    ):
        for path in ("/v1/chat/completions", "/v1/messages", "/v1/embeddings", "/v1/batches"):
            answer = await ask(victim, kit.post_json(path, value))
            # 415: a body above 1 MiB that cannot be read may contain a private member.
            assert answer.status in (400, 404, 415), answer


@recipe()
async def a_hundred_thousand_members(victim: Victim) -> None:
    """Members with different names, and members with the same name."""
    many = b",".join(b'"k%d":%d' % (n, n) for n in range(100_000))
    same = b",".join(b'"model":"m"' for _ in range(100_000))
    for members in (many, same):
        answer = await ask(
            victim, kit.post_json("/v1/chat/completions", b'{"model":"m",' + members + b"}")
        )
        assert answer.status in (200, 400), answer


@recipe()
async def large_bodies_that_no_decoder_takes(victim: Victim) -> None:
    """Bodies of seven MiB of members, spaces or half surrogate pairs, on each route that reads
    JSON.
    """
    many = b",".join(b'"%x":1' % n for n in range(700_000))
    halves = b"\\ud800" * (7 * MIB // 6)
    for members in (
        b'"stream":"x",' + many,
        b'"priority":1,' + many,
        b'"stream":true,"stream_options":{' + many + b"}",
        b'"messages":["x"' + b" " * 7 * MIB + b"]",
        b'"user":"u","previous_response_id":"' + halves + b'"',
        b'"previous_response_id":"\\ud800","messages":["' + halves + b'"]',
    ):
        data = kit.post_json("/v1/chat/completions", b'{"model":"m",' + members + b"}")
        assert (await ask(victim, data)).status in (200, 400)


@recipe()
async def dense_bodies_that_are_scanned(victim: Victim) -> None:
    """Bodies of twenty MiB of tiny members, escapes, empty strings, or spaces between members.

    Those with too many members are 415, because they may contain a private member.
    """
    for dense in (
        b'"n":1,' * (20 * MIB // 6) + b'"n":1',
        b'"messages":["' + b'\\"' * 10 * MIB + b'"]',
        b'"messages":[' + b'"",' * (20 * MIB // 3) + b'""]',
        b" " * 20 * MIB + b'"n":1',
    ):
        data = kit.post_json("/v1/chat/completions", b'{"model":"m",' + dense + b"}")
        assert (await ask(victim, data)).status in (200, 400, 415)


@recipe()
async def dense_bodies_up_to_each_limit(victim: Victim) -> None:
    """Bodies as large as each body reader accepts, with the content that is slowest to decode."""
    for size in (EACH_UP_TO, DECODE_UP_TO, SCAN_ABOVE // 2, SCAN_ABOVE):
        for dense in (b"[],", b'"",', b"1,", b'{"":1},'):
            x = b'"x":[' + dense * ((size - 200) // len(dense)) + b"1]"
            for members in (
                b'"stream":true,"stream_options":{"include_usage":false},',
                b'"priority":1,',
                b'"max_tokens":1.0,"priority":1,',
            ):
                data = kit.post_json("/v1/chat/completions", b'{"model":"m",' + members + x + b"}")
                assert (await ask(victim, data)).status == 200


@recipe(memory=256 * MIB)
async def large_forms(victim: Victim) -> None:
    """Forms of sixty MiB: one file, beginnings of a delimiter, or carriage returns."""
    mark = b"b" * 60
    part = b'--%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n'
    for filler in (b"x", b"\r\n--" + b"b" * 59, b"\r", b"\r\n--" + b"b" * 30):
        body = part % (mark, b"model") + b"m\r\n" + part % (mark, b"file")
        body += filler * (60 * MIB // len(filler)) + b"\r\n--" + mark + b"--\r\n"
        kind = "content-type: multipart/form-data; boundary=" + mark.decode()
        fields = ["host: h", kind, f"content-length: {len(body)}"]
        data = kit.head("POST /v1/audio/transcriptions HTTP/1.1", fields) + body
        assert (await ask(victim, data)).status == 200


@recipe()
async def endless_digits(victim: Victim) -> None:
    """Numbers of a million digits in every place where a number is read."""
    for name in (b"priority", b"max_tokens", b"n", b"seed"):
        value = b'{"model":"m","messages":[],"' + name + b'":' + b"9" * MIB + b"}"
        answer = await ask(victim, kit.post_json("/v1/chat/completions", value))
        assert answer.status in (200, 400), answer


@recipe(memory=512 * MIB, extra="keys: {file: '{folder}/keys.jsonl'}\n")
async def inflated_bodies(victim: Victim) -> None:
    """Bodies of 64 MiB of zeros, compressed to a few KiB, one after the other and eight at once.

    Together they may need `limits.bodies_total`.
    """
    body = b'{"model":"m","x":"' + bytes(64 * MIB)
    packs = {"gzip": gzip.compress(body), "zstd": zstd.compress(body), "br": brotli.compress(body)}
    for coding, squeezed in packs.items():
        data = kit.post_json("/v1/chat/completions", squeezed, f"content-encoding: {coding}")
        assert (await ask(victim, data)).status == 413
        for answer in await asyncio.gather(*[ask(victim, data) for _ in range(8)]):
            assert answer.status in (413, 503), answer


@recipe()
async def json_of_another_parser(victim: Victim) -> None:
    """Bodies that only Python's parser reads, made of many small values."""
    for unit in (b"[],", b'"",', b"NaN,", b'{"":0},', b'"\\udc00",'):
        values = unit * (DECODE_UP_TO // len(unit) - 20)
        body = b'{"model":"m","messages":[%b0],"x":NaN}' % values
        answer = await ask(victim, kit.post_json("/v1/chat/completions", body))
        assert answer.status == 200, answer


@recipe()
async def forms_without_end(victim: Victim) -> None:
    """Forms of one MiB without an end: one header, parameters, empty parts, or false boundaries."""
    named = b'--b\r\nContent-Disposition: form-data; name="model"\r\n'
    for filler in (
        named + b"X: " + b"a" * MIB,
        named + b"X" * MIB,
        b"--b\r\nContent-Disposition: form-data" + b"; a=b" * (MIB // 5),
        b"--b\r\nContent-Disposition: form-data" + b';\t"' * (MIB // 3),
        b"--b\r\n\r\n" * (MIB // 7),
        named + b"\r\n" + b"\r\n--" * (MIB // 4),
        named + b"\r\n" + b"\r" * MIB,
        b"-" * MIB,
    ):
        for sizes in ((), (1400,)):
            answer = await ask(victim, form(filler), sizes, 0)
            assert answer.status in (200, 400, 431), answer


@recipe(extra="batches: {enabled: true, folder: '{folder}/b', disk_free: 0}\n")
async def uploads_of_no_file(victim: Victim) -> None:
    """Forms of four MiB without a file, files full of beginnings of a boundary, and a form in
    chunks of one byte.
    """
    field = b"--b\r\nContent-Disposition: form-data; name=purpose\r\n"
    file = b"--b\r\nContent-Disposition: form-data; name=file\r\n\r\n"
    for start, filler in (
        (b"", b"\r\n"),
        (b"", b"x\r\n"),
        (b"", b"\r\n-"),
        (field, b"X:y\r\n"),
        (field + b"X:", b" "),
        (field + b"\r\n", b"x"),
        (b"", field + b"\r\n\r\n"),
        (file + b"\r\n--b", b" "),
        (file, b"\r\n--bx"),
        (file, b"\r\n--b-x"),
        (file, b"\r\n--"),
        (file + b"\r\n--b--", b"\r\n"),
    ):
        body = start + filler * (4 * MIB // len(filler))
        fields = ["host: h", FORM, f"content-length: {len(body)}"]
        answer = await ask(victim, kit.head("POST /v1/files HTTP/1.1", fields) + body)
        assert answer.status == 400, (start, filler, answer)
    content = b"\r\n--" * (MIB // 64)
    whole = file + content + b"\r\n" + field + b"\r\nbatch\r\n--b--"
    fields = ["host: h", FORM, "transfer-encoding: chunked"]
    ones = b"".join(b"1\r\n%c\r\n" % byte for byte in whole) + kit.LAST_CHUNK
    answer = await ask(victim, kit.head("POST /v1/files HTTP/1.1", fields) + ones)
    assert (answer.status, answer.json()["bytes"]) == (200, len(content)), answer


@recipe(memory=160 * MIB, extra="limits: {body: 8388608, bodies_total: 67108864}\n")
async def a_replica_that_reads_nothing(victim: Victim) -> None:
    """A replica does not read forty bodies of 7 MiB: the bytes held for it are counted, and
    limited.
    """
    victim.pair[0].behave = victim.pair[1].behave = Answer(b"", asks="nothing", ends="hangs")
    data = kit.post_json("/v1/chat/completions", kit.chat_body(model=PAIR, x="x" * 7 * MIB))
    await at_once(victim, *[Client(data, ends="closes", reads_s=1.5)] * 40)
    await ended(victim, 1, 503, kind="chat")  # requests above the limit of held bytes are refused


# -- connections and heads ------------------------------------------------------------------------


@recipe()
async def heads_that_drip(victim: Victim) -> None:
    """Four hundred clients whose heads never end."""
    start = b"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\n"
    data = start + b"x-a: b\r\n" * 2000
    await at_once(victim, *[Client(data, (3, 1), reads_s=0.1)] * 400)
    await came(victim, 400)


@recipe()
async def chunks_of_one_byte(victim: Victim) -> None:
    """A body in chunks of one byte, with chunk extensions of maximum length."""
    value = json.dumps(kit.chat_body(user="u" * 5000)).encode()
    for extension in (b"", b";a=" + b"b" * 200):
        chunks = b"".join(b"1%b\r\n%c\r\n" % (extension, byte) for byte in value)
        fields = ["host: h", "content-type: application/json", "transfer-encoding: chunked"]
        data = kit.head("POST /v1/chat/completions HTTP/1.1", fields) + chunks + kit.LAST_CHUNK
        answer = await ask(victim, data, (50,), 0)
        assert answer.status in (200, 400), answer


@recipe()
async def chunks_full_of_line_ends(victim: Victim) -> None:
    """Four MiB of chunk-end markers as content, in one chunk and in chunks of 64 KiB."""
    fields = ["host: h", "content-type: text/plain", "transfer-encoding: chunked"]
    fields.append(f"x-router-model: {GOOD}")
    for size in (4 * MIB, 65_536):
        chunks = kit.chunk(b"\r\n\r\n" * (size // 4)) * (4 * MIB // size)
        data = kit.head("POST /x HTTP/1.1", fields) + chunks + kit.LAST_CHUNK
        answer = await ask(victim, data)
        assert answer.status in (200, 404), answer


@recipe()
async def empty_lines_before_a_request(victim: Victim) -> None:
    """One MiB of empty lines, at once and in pieces of one byte."""
    assert (await ask(victim, b"\r\n" * (MIB // 2))).status == 400
    assert (await ask(victim, b"\r\n" * 100, (1,))).status == 400


@recipe()
async def trailers_without_end(victim: Victim) -> None:
    fields = ["host: h", "content-type: application/json", "transfer-encoding: chunked"]
    value = kit.chunk(json.dumps(kit.chat_body()).encode())
    data = (
        kit.head("POST /v1/chat/completions HTTP/1.1", fields)
        + value
        + b"0\r\n"
        + b"a: b\r\n" * MIB
    )
    await Client(data, (1400,), reads_s=1.0).act(victim.port)
    await ended(victim, 1, 400, 431)


@recipe()
async def a_client_that_asks_and_does_not_read(victim: Victim) -> None:
    """Fifty connections, each with 1000 pipelined requests that the router answers itself.

    The router keeps 1000 pipelined requests during an answer; more are refused.
    """
    data = kit.request("/v1/models") * 1000
    await at_once(victim, *[Client(data, ends="stops")] * 50)
    await ended(victim, 1000, 200, kind="models")


@recipe()
async def connections_opened_and_reset(victim: Victim) -> None:
    """Two thousand requests whose clients have disconnected before the router reads them."""
    for _ in range(20):
        await at_once(victim, *[Client(kit.chat(), ends="resets")] * 100)
    await came(victim, 2000)


# -- replicas -------------------------------------------------------------------------------------


class Bomb:
    """Answers of a replica to probes: these pages in turn."""

    def __init__(self, kind: str, pages: list[bytes]) -> None:
        self.asked = 0
        self._kind = kind
        self._pages = pages

    async def __call__(self, connection: kit.ReplicaConnection) -> None:
        page = self._pages[self.asked % len(self._pages)]
        self.asked += 1
        fields = [f"content-type: {self._kind}", f"content-length: {len(page)}"]
        await connection.send(kit.head("HTTP/1.1 200 OK", fields) + page)


async def answered(victim: Victim, *answers: Answer, stream: bool = True) -> None:
    """Let a client read each of these answers of a replica."""
    for answer in answers:
        victim.hostile.then(answer)
        victim.renew()
        await Client(kit.chat(stream=stream), reads_s=1.5).act(victim.port)
        assert not victim.hostile.script, f"the router did not meet {answer}"


@recipe()
async def streams_of_tiny_pieces(victim: Victim) -> None:
    """Streams sent byte by byte, in chunks of one byte, and 50,000 events at once."""
    events = kit.role() + kit.token("t") * 20
    ones = b"".join(kit.chunk(bytes([byte])) for byte in events)
    await answered(
        victim,
        Answer(kit.SSE_HEAD + kit.chunk(events) + kit.LAST_CHUNK, (1,)),
        Answer(kit.SSE_HEAD + ones + kit.LAST_CHUNK),
        Answer(kit.SSE_HEAD + kit.chunk(kit.token("t")) * 50_000 + kit.LAST_CHUNK),
        Answer(kit.SSE_HEAD + kit.chunk(b"\n") * 100_000 + kit.LAST_CHUNK),
        Answer(kit.SSE_HEAD + kit.chunk(b": c\n") * 100_000 + kit.LAST_CHUNK),
    )


@recipe()
async def events_without_end(victim: Victim) -> None:
    """Streams of sixteen MiB: one event, line ends, the beginning of an error or of a usage
    event.
    """
    for unit in (b"x", b"\r", b"data: x\n", b'"_tokens"', b'{"error":', b'"usage":{'):
        data = kit.chunk(unit * (65_536 // len(unit))) * 256
        await answered(victim, Answer(kit.SSE_HEAD + kit.chunk(b"data: ") + data, ends="closes"))


@recipe()
async def events_that_are_searched_again(victim: Victim) -> None:
    """Events that a reader might search repeatedly.

    An event of 200 KB full of error marks, an event of many data lines, and events of 32 KB in
    chunks of one byte.
    """
    marks = b'data: "error"' + b"\nevent: error" * 15_000 + b"\n\n"
    pending = (b": " + b"\nx" * 15_900 + b"\n\n") * 7
    ones = b"".join(kit.chunk(bytes([byte])) for byte in pending)
    await answered(
        victim,
        Answer(kit.SSE_HEAD + kit.chunk(kit.token("t")) + kit.chunk(marks) * 4, ends="closes"),
        Answer(kit.SSE_HEAD + kit.chunk(b"data: 1,\n" * 25_000) * 4, ends="closes"),
        Answer(kit.SSE_HEAD + ones, ends="closes"),
    )


@recipe()
async def heads_without_end(victim: Victim) -> None:
    """Endless informational responses, header fields and status line."""
    await answered(
        victim,
        Answer(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 50_000, ends="closes"),
        Answer(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200_000, ends="closes"),
        Answer(b"HTTP/1.1 200 " + b"O" * 2 * MIB, ends="closes"),
        Answer(b"\r\n" * MIB, ends="closes"),
        stream=False,
    )


@recipe()
async def answers_that_nobody_asked_for(victim: Victim) -> None:
    """Bytes after a whole answer must never reach the next client."""
    stolen = kit.completion("x-stolen: yes")
    for _ in range(20):
        victim.hostile.then(Answer(kit.completion() + stolen))
        victim.renew()
        for _ in range(3):
            answer = await ask(victim, kit.chat())
            assert answer.status == 200, answer
            assert answer.header("x-stolen") is None, answer
        assert not victim.hostile.script, "the router did not meet it"


@recipe()
async def a_model_list_that_is_a_bomb(victim: Victim) -> None:
    """A replica whose answers to probes are deeply nested, long, or not a list of models."""
    pages = [
        b'{"data":' + b"[" * MIB,
        b"[" * MIB + b"]" * MIB,
        b'{"object":"list","data":['
        + b",".join(b'{"id":"m%d"}' % n for n in range(200_000))
        + b"]}",
        b'{"object":"list","data":[{"id":"' + b"m" * 8 * MIB + b'"}]}',
        b"\xff" * MIB,
    ]
    bomb = Bomb("application/json", pages)
    for replica in victim.pair:
        replica.control.at[kit.MODELS] = bomb
    await kit.eventually(lambda: bomb.asked >= 2, "lists were asked for")
    for replica in victim.pair:
        replica.control.at.clear()


@recipe()
async def a_long_model_list_asked_for_often(victim: Victim) -> None:
    """Twenty clients, each with a thousand pipelined requests for the longest list of models."""
    names = [f"{BAD}{n}" for n in range(MODELS_MOST)]
    async with listing(victim, names, sum(map(len, names))):
        await at_once(victim, *[Client(kit.request("/v1/models") * 1000, reads_s=2.0)] * 20)


@recipe()
async def metrics_that_are_a_bomb(victim: Victim) -> None:
    """Metrics pages that are long, have many labels, or contain impossible values."""
    line = b'vllm:num_requests_running{engine="0",model_name="n"} '
    pages = [
        line + b"9" * MIB + b"\n",
        b"vllm:num_requests_running{" + b'a="b",' * 200_000 + b"} 1\n",
        (line + b"1\n") * 100_000,
        b'x{a="' + b"\\" * MIB + b'"} 1\n',
        line + b"-1e999\n" + line + b"NaN\n",
        b"# HELP " + b"h" * 8 * MIB,
    ]
    bomb = Bomb("text/plain", pages)
    for replica in victim.pair:
        replica.control.at["/metrics"] = bomb
    try:
        async with asyncio.timeout(4):
            while bomb.asked < 2 * len(pages):
                assert (await ask(victim, kit.chat(model=PAIR))).status in (200, 503)
                await asyncio.sleep(0.02)
    except TimeoutError:
        pass
    assert bomb.asked >= len(pages), f"{bomb.asked} pages were read"


# -- tenants --------------------------------------------------------------------------------------


@recipe(extra="classes: {normal: {depth: 200}}\n")
async def a_tenant_that_invents_credentials(victim: Victim) -> None:
    """Six hundred requests, each with another bearer token, while the replica does not answer."""
    victim.hostile.behave = Answer(b"", ends="hangs")
    clients = [
        Client(kit.chat(f"authorization: Bearer {n}", model=BAD), reads_s=1.0) for n in range(600)
    ]
    await asyncio.gather(*(client.act(victim.port) for client in clients))
    await ended(victim, 100, 429, kind="chat")


@pytest.mark.parametrize("name", RECIPES.by_name)
def test_recipe(name: str, tmp_path: Path) -> None:
    RECIPES.run(name, tmp_path)
