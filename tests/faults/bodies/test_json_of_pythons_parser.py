"""JSON that is not valid, but that the parser of engines (`json.loads`) accepts, passes.

The parser finds UTF-16 and UTF-32, skips a byte order mark, and knows NaN and Infinity.
"""

import json

import pytest

from router.config.model import Priority
from router.core.errors import Reason
from tests.examples import ALL
from tests.harness.behaviours import json_ok
from tests.harness.messages import LAST_CHUNK, chunk, post_json, request
from tests.harness.running import Router, assert_error, routed, running, scenario

CHAT = "/v1/chat/completions"
CASES = {
    "NaN": ({"temperature": float("nan")}, "utf-8"),
    "Infinity": ({"a": [1, {"b": [float("inf"), float("-inf")]}]}, "utf-8"),
    "NaN in a member that is read": ({"max_tokens": float("nan"), "n": float("inf")}, "utf-8"),
    "NaN in the prompt": ({"messages": [{"role": "user", "content": float("nan")}]}, "utf-8"),
    "odd type before NaN": ({"stream": "no", "temperature": float("nan")}, "utf-8"),
    "half a surrogate pair": ({"stop": "\ud800"}, "utf-8"),
    "surrogate and NaN": ({"user": "\udc00", "messages": "\ud800", "x": float("nan")}, "utf-8"),
    "byte order mark": ({}, "utf-8-sig"),
    **{name: ({}, name) for name in ("utf-16", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")},
}
LARGEST = "over 8 MiB"
SIZES = {"small": 0, "over 512 KiB": 600_000, "over 1 MiB": 1_200_000, LARGEST: 8_500_000}


# All cases of the largest size take as long as all others together.
PASSING = [(c, s) for c in CASES for s in SIZES if ALL or s != LARGEST or c in ("NaN", "utf-16")]


@pytest.mark.parametrize(("case", "name"), PASSING)
@scenario
async def test_it_passes_at_every_size(case: str, name: str) -> None:
    size = SIZES[name]
    extra, text = CASES[case]
    value = {"model": "m", "messages": [], "pad": 'é"' * (size // 8), **extra}
    body = json.dumps(value, ensure_ascii=text == "utf-8").encode(text)
    async with running(json_ok, replica={"engine": "vllm"}) as router:
        client = await router.send(post_json(CHAT, body))
        assert (await client.recv_response("POST")).status == 200
        await client.send(request(CHAT, "Transfer-Encoding: chunked", method="POST"))
        await client.send_pieces(
            [chunk(body[:1]), chunk(body[1:3]), chunk(body[3:-1]), chunk(body[-1:]), LAST_CHUNK]
        )
        assert (await client.recv_response("POST")).status == 200
        for seen in router.replica.requests:
            found = json.loads(seen.body)
            found.pop("priority", None)
            assert json.dumps(found) == json.dumps(value)
            assert bytes(seen.body).startswith(b"{")


@pytest.mark.parametrize("text", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32-be"])
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@scenario
async def test_its_members_are_read_and_edited(text: str, size: int) -> None:
    """A priority above the ceiling does not pass in another encoding, private members neither."""
    pad = "x" * size
    urgent = {"model": "m", "messages": [], "priority": -1_000_000, "pad": pad}
    private = {"model": "m", "messages": [], "kv_transfer_params": {}, "pad": pad}
    limited = Priority(ceiling="normal")
    async with running(json_ok, replica={"engine": "vllm"}, priority=limited) as router:
        answer = await router.ask(post_json(CHAT, json.dumps(urgent).encode(text)), "POST")
        assert answer.status == 200
        answer = await router.ask(post_json(CHAT, json.dumps(private).encode(text)), "POST")
        assert_error(answer, Reason.PRIVATE_MEMBER)
        for seen in router.replica.requests:
            assert json.loads(seen.body)["priority"] != -1_000_000


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "m", "messages": [], "x": nan}',
        b'{"model": "m", "messages": [], "x": -NaN}',
        b'{"model": "m", "messages": [], "x": +Infinity}',
        b'{"model": "m", "messages": [], "x": NaN,}',
        b'{"model": "m", "messages": [], "x": NaN} x',
        b"[NaN]",
        b'{"model": NaN, "messages": []}',
        b'{"model": "\\ud800", "messages": [], "x": NaN}',
        '{"model": "m", "messages": []}'.encode("utf-16")[:-1],
        '{"model": "m", "messages": []'.encode("utf-16"),
        b"\xff\xfe\x00\xd8" + '{"model": "m"}'.encode("utf-16-le"),
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b'{"x": NaN, "a": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
@routed(json_ok)
async def test_what_no_parser_accepts_is_refused(router: Router, body: bytes) -> None:
    answer = await router.ask(post_json(CHAT, body), "POST")
    assert answer.status == 400
    assert answer.error()["code"] in ("bad_json", "bad_model")
    assert not router.replica.requests


@pytest.mark.parametrize("body", [b"\xef\xbb\xbfabc", "{}".encode("utf-16"), b"\x00\x01\x02\x03"])
@routed(json_ok)
async def test_bodies_of_other_paths_are_not_changed(router: Router, body: bytes) -> None:
    assert (await router.ask(request("/other", method="POST", body=body), "POST")).status == 200
    assert bytes(router.replica.requests[0].body) == body
