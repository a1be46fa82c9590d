"""Members that choose where an engine reads or writes never reach an engine from a client."""

import json
from typing import Any

import pytest

from router.config.model import Bodies
from router.core.errors import Reason
from router.fleet.engines.common.registry import MEMBER_NESTS, PRIVATE_MEMBERS
from router.intake.body import DECODE_UP_TO, EACH_UP_TO, SCAN_ABOVE
from router.intake.fields import NAMES
from tests.harness.behaviours import echo
from tests.harness.messages import chat_body, post_json, request
from tests.harness.running import TOLD_NOTHING, Router, assert_error, routed, running, scenario

CHAT = "/v1/chat/completions"
NAME = "kv_transfer_params"
VALUE = {"do_remote_prefill": True, "remote_host": "10.0.0.1", "remote_request_id": "x"}
MEMBER = b'"kv_transfer_params": {"do_remote_prefill": true}'
FORM = "Content-Type: multipart/form-data; boundary=b"
SIZES = {"small": 0, "each": EACH_UP_TO, "decoded": DECODE_UP_TO, "scanned": SCAN_ABOVE}


def with_member(member: bytes, size: int = 0, *, path: str = CHAT) -> bytes:
    """A request whose body has `member` before and after other members."""
    padding = b"x" * size
    body = b'{"model": "m", "messages": [], "x": "' + padding + b'", ' + member + b"}"
    return post_json(path, body)


async def is_refused(asked: bytes, name: str = NAME) -> None:
    async with running(echo, replica=TOLD_NOTHING) as router:
        answer = await router.ask(asked)
        assert_error(answer, Reason.PRIVATE_MEMBER, 400)
        assert answer.error()["param"] == name
        assert name in answer.error()["message"]
        assert "bodies.allow" in answer.error()["message"]
        assert not router.replica.requests
        assert await router.reason() == "private_member"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kv_transfer_params", VALUE),
        ("ec_transfer_params", {}),
        ("bootstrap_host", "10.0.0.1"),
        ("bootstrap_port", [8998, None]),
        ("bootstrap_room", 0),
        ("disaggregated_params", {"request_type": "generation_only"}),
        ("data_parallel_rank", 0),
        ("routed_dp_rank", "1"),
        ("disagg_prefill_dp_rank", False),
    ],
)
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/generate", "/v1/new", "/v1/responses"])
@scenario
async def test_a_client_cannot_set_it(path: str, name: str, value: Any) -> None:
    await is_refused(post_json(path, {**chat_body(), name: value}), name)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize(
    "member",
    [
        MEMBER,
        b'"\\u006bv_transfer_params": {}',
        b'"kv_transfer_params": null, ' + MEMBER,
        MEMBER + b', "kv_transfer_params": null',
        b'"max_tokens": "odd", ' + MEMBER,
        b'"user": "\\ud800", ' + MEMBER,
        b'"kv_transfer_params": "' + b"y" * 5000 + b'"',
        b'"vllm_xargs": {"a": 1, "kv_transfer_params": {}}',
        b'"vllm_xargs": null, "vllm_xargs": {"kv_transfer_params": 1}, "vllm_xargs": 1',
        b'"sampling_params": {"n": 1, "extra_args": {"kv_transfer_params": {}}}',
        b'"sampling_params": {"extra_args": {"x": "' + b"y" * 5000 + b'", ' + MEMBER + b"}}",
        b'"parameters": {"kv_transfer_params": {}}',
        b'"extra_body": {"kv_transf\\u0065r_params": {}}',
    ],
    ids=range(13),
)
@scenario
async def test_it_is_found_in_any_place_of_a_body_of_any_size(member: bytes, size: int) -> None:
    await is_refused(with_member(member, size))


@pytest.mark.parametrize("size", [0, DECODE_UP_TO, SCAN_ABOVE], ids=str)
@pytest.mark.parametrize(
    "member",
    [
        b'"kv_transfer_params": null',
        b'"vllm_xargs": {"a": [1, {"kv_transfer_params": 1}], "kv_transfer_params": null}',
        b'"vllm_xargs": [{"kv_transfer_params": 1}], "sampling_params": "kv_transfer_params"',
        b'"tools": [{"function": {"parameters": {"properties": {"bootstrap_host": {}}}}}]',
        b'"prompt": "\\"kv_transfer_params\\": {}"',
        b'"parameters": {"best_of": 1, "x": {"kv_transfer_params": 1}}',
    ],
    ids=range(6),
)
@scenario
async def test_other_bodies_pass_unchanged(member: bytes, size: int) -> None:
    asked = with_member(member, size)
    async with running(echo, replica=TOLD_NOTHING) as router:
        assert (await router.ask(asked)).status == 200
        assert asked.endswith(bytes(router.replica.requests[0].body))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
@scenario
async def test_an_encoding_that_only_an_engine_reads(encoding: str) -> None:
    for member in (MEMBER, MEMBER.replace(b"k", b"\\u006b", 1)):
        body = (b'{"model": "m", ' + member + b"}").decode().encode(encoding)
        await is_refused(post_json("/v1/new", body))


@scenario
async def test_a_number_that_only_an_engine_reads() -> None:
    await is_refused(with_member(b'"temperature": NaN, ' + MEMBER, path="/v1/new"))


def form(name: str, value: str) -> bytes:
    fields = {"model": "m", name: value}
    parts = [
        f'--b\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{text}\r\n'
        for key, text in fields.items()
    ]
    return "".join([*parts, "--b--\r\n"]).encode()


@pytest.mark.parametrize("path", ["/v1/audio/transcriptions", "/v1/new"])
@pytest.mark.parametrize(
    ("name", "value"), [(NAME, "{}"), ("vllm_xargs", json.dumps({"a": 1, NAME: VALUE}))]
)
@scenario
async def test_a_form(path: str, name: str, value: str) -> None:
    await is_refused(request(path, FORM, method="POST", body=form(name, value)))


@scenario
async def test_a_form_with_other_arguments_passes() -> None:
    asked = request(
        "/v1/audio/transcriptions", FORM, method="POST", body=form("vllm_xargs", '{"a": 1}')
    )
    async with running(echo, replica=TOLD_NOTHING) as router:
        assert (await router.ask(asked)).status == 200


@scenario
async def test_a_line_of_form_data_and_a_put_are_checked() -> None:
    await is_refused(
        request(
            "/v1/new",
            "Content-Type: application/x-www-form-urlencoded",
            method="POST",
            body=b"model=m&kv_transfer_params=1",
        )
    )
    put = request(CHAT, method="PUT", body=json.dumps({**chat_body(), NAME: VALUE}).encode())
    await is_refused(put)


@scenario
async def test_members_that_the_operator_allows() -> None:
    asked = {**chat_body(), NAME: VALUE, "vllm_xargs": {NAME: 1}}
    async with running(echo, replica=TOLD_NOTHING, bodies=Bodies(allow=(NAME,))) as router:
        answer = await router.ask(post_json(CHAT, asked))
        assert answer.status == 200
        assert json.loads(bytes(router.replica.requests[0].body)) == asked
        answer = await router.ask(post_json(CHAT, {**asked, "bootstrap_host": "h"}))
        assert_error(answer, Reason.PRIVATE_MEMBER, 400)
        router.change(bodies=Bodies())
        await router.app.reload()
        assert (await router.ask(post_json(CHAT, asked))).status == 400


@routed(echo, replica=TOLD_NOTHING)
async def test_the_rank_in_a_header_is_not_forwarded(router: Router) -> None:
    answer = await router.ask(post_json(CHAT, chat_body(), "X-data-parallel-rank: 1"))
    assert answer.status == 200
    assert router.replica.requests[0].header("x-data-parallel-rank") is None


def test_the_decoder_knows_every_member() -> None:
    """A member that `Members` has as raw JSON is not checked by the decoder's type."""
    own = set(NAMES)
    assert not own & PRIVATE_MEMBERS
    assert own & MEMBER_NESTS == {"parameters"}
