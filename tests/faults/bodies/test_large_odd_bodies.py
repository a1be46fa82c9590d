"""A large body that the decoder cannot read is scanned, forwarded, and truncated if necessary."""

import json
import tracemalloc

import pytest

from router.config.model import Prefix
from router.core.errors import Reason, RouterError
from router.dispatch.attempts.engine_priority import without
from router.dispatch.usage.usage_ask import asking, replaced
from router.fleet.engines.vllm import ENGINE
from router.intake.body import DECODE_UP_TO, EACH_UP_TO, SCAN_ABOVE, read_fields
from router.intake.fields import Fields
from router.intake.members import MEMBERS
from router.intake.prompt import prompt_blocks
from router.intake.routes import POSTS
from tests.harness.behaviours import echo, json_ok
from tests.harness.messages import post_json
from tests.harness.running import TOLD_NOTHING, Router, routed, running, scenario
from tests.intake.members import found

CHAT = "/v1/chat/completions"
LONG = b'"x": "' + b"x" * EACH_UP_TO + b'"'
SCANNED = b'"y": [' + b"1," * (DECODE_UP_TO // 2) + b"1]"  # a body with this member is not decoded
MANY = b",".join(b'"%x":1' % n for n in range(EACH_UP_TO // 6))


def read(body: bytes) -> Fields:
    return read_fields(POSTS[CHAT.encode()], [body], len(body), b"application/json", None)


@pytest.mark.parametrize(
    "odd", [b'"stream": "maybe"', b'"max_tokens": 1.0', b'"user": "\\ud800"', b'"messages": 3']
)
@pytest.mark.parametrize("filler", [LONG, SCANNED], ids=["long", "scanned"])
@scenario
async def test_it_is_forwarded_untouched(odd: bytes, filler: bytes) -> None:
    body = b'{"model": "m", ' + odd + b', "prompt_cache_key": "\\ud800", ' + filler + b"}"
    async with running(echo, replica=TOLD_NOTHING) as router:
        answer = await router.ask(post_json(CHAT, body))
        assert answer.status == 200, answer
        assert bytes(router.replica.requests[0].body) == body
        assert (await router.log())[0]["model"] == "m"


@pytest.mark.parametrize(
    "members",
    [
        b'"priority": 1, "model": "m", ' + LONG,
        b'"model": "m", ' + LONG + b' , "priority" : -5 ',
        b'"model": "m", "priority": 3, ' + LONG + b', "priority": 4, "\\u0070riority": 5',
        b'"model": "m", "y": {"priority": 1}, ' + LONG + b',"priority":"low"\n',
        b'"priority": 2, "model": "m", ' + LONG + b', "priority": -9, ' + SCANNED,
        b'"model": "m", ' + SCANNED + b"," + LONG + b', "priority": -9 , "priority" : -5 ',
    ],
    ids=range(6),
)
@scenario
async def test_its_priority_does_not_pass(members: bytes) -> None:
    body = b"{" + members + b"}"
    async with running(echo, replica=TOLD_NOTHING) as router:
        answer = await router.ask(post_json(CHAT, body))
        assert answer.status == 200, answer
        rest = json.loads(body)
        del rest["priority"]
        asked = bytes(router.replica.requests[0].body)
        assert json.loads(asked) == rest
        assert LONG in asked
        assert b'"priority" : -5' not in asked


@pytest.mark.parametrize("odd", [b'"stream": "x"', b'"priority": 1', b'"user": "\\ud800", "n": []'])
@routed(echo, replica=TOLD_NOTHING)
async def test_too_many_members_to_find_one_are_refused(router: Router, odd: bytes) -> None:
    answer = await router.ask(post_json(CHAT, b'{"model": "m", ' + odd + b"," + MANY + b"}"))
    assert answer.status == 400
    assert answer.error()["code"] == "bad_json"
    assert str(MEMBERS) in answer.error()["message"]
    plain = b'{"model": "m", "messages": [],' + MANY + b"}"
    assert (await router.ask(post_json(CHAT, plain))).status == 200


def test_the_fields_are_those_of_a_small_body() -> None:
    members = (
        b'"model": "m", "stream": "x", "n": 2.0, "max_tokens": 7, "prompt": 3, "user": "u",'
        b' "messages": [ "a" ] , "tools" : ["b"], "priority": 1, "previous_response_id": {}'
    )
    small, large = read(b"{" + members + b"}"), read(b"{" + members + b"," + LONG + b"}")
    assert found(large) == found(small)
    assert (large.n, large.max_tokens, large.prompt) == (2, 7, None)
    assert bytes(large.messages or b"") == b'[ "a" ]'


def test_what_is_no_object_is_refused() -> None:
    for end in (b"", b"]", b"}}", b"} x"):
        with pytest.raises(RouterError) as refused:
            read(b'{"stream": "x", ' + LONG + end)
        assert refused.value.reason is Reason.BAD_JSON


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","stream":"x",' + MANY + b"}",
        b'{"model":"m","priority":1,' + MANY + b"}",
        b'{"model":"m","stream":true,"stream_options":{' + MANY + b"}}",
        b'{"model":"' + b"\\ud800" * (EACH_UP_TO // 6) + b'",  "messages":[]}',
        b'{"model":"\\ud800","messages":["' + b"\\ud800" * (EACH_UP_TO // 6) + b'"]}',
        b'{"model":"m","messages":["x"' + b" " * EACH_UP_TO + b"]}",
    ],
    ids=["odd", "priority", "stream_options", "surrogates", "surrogates elsewhere", "spaces"],
)
def test_it_costs_no_more_memory_than_a_few_copies(body: bytes) -> None:
    tracemalloc.start()
    try:
        fields = read(body)
        if fields.priority is not None:
            without([body])
        if fields.stream_options is not None:
            options, ask = bytes(fields.stream_options), ENGINE.usage_ask
            assert ask is not None
            asked = asking(options, ask)
            assert asked is not None
            replaced([body], options, asked[0])
        prompt_blocks("chat", fields, 512, 128)
    except RouterError as err:
        assert err.reason in (Reason.BAD_JSON, Reason.BAD_MODEL)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * len(body)


@pytest.mark.parametrize("size", [10, EACH_UP_TO, DECODE_UP_TO, SCAN_ABOVE - 30_000])
@scenario
async def test_a_prompt_of_any_size_is_known_again(size: int) -> None:
    """A scanned body has the same block hashes as a decoded one."""
    shared = "x" * 20_000
    async with running(json_ok, replica=TOLD_NOTHING, prefix=Prefix()) as router:
        for pad in (10, size):
            messages = [{"role": "user", "content": shared}]
            body = json.dumps({"model": "m", "messages": messages, "pad": "y" * pad}).encode()
            assert (await router.ask(post_json(CHAT, body))).status == 200
        first, second = await router.log(2)
        assert first["estimated_tokens"] == second["estimated_tokens"] > 4000
        assert first["blocks"] == second["blocks"] != ""
