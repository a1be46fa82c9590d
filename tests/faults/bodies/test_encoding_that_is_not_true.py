"""A body that is text, although its Content-Encoding says that it is compressed.

vLLM and SGLang ignore Content-Encoding, and read UTF-8 (also with a byte order mark), UTF-16 and
UTF-32. So the limits of priorities and names apply to such a body.
"""

import json

import pytest

from router.config.model import Priority
from router.core.errors import Reason
from router.intake.body import SCAN_ABOVE
from tests.harness.behaviours import json_ok
from tests.harness.messages import post_json, request
from tests.harness.running import Router, assert_error, routed, running, scenario

CHAT, BATCH = "/v1/chat/completions", "/v1/chat/completions/batch"
CODINGS = ["gzip", "br", "x", ""]
URGENT = {"model": "m", "messages": [], "priority": -1_000_000}
LIMITED = Priority(ceiling="normal")
FORM = (
    b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n'
    b'--b\r\nContent-Disposition: form-data; name="priority"\r\n\r\n-99\r\n--b--\r\n'
)


@pytest.mark.parametrize("text", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "utf-32-be"])
@pytest.mark.parametrize("size", [0, SCAN_ABOVE])
@scenario
async def test_another_encoding_of_text_is_read(size: int, text: str) -> None:
    body = json.dumps({**URGENT, "x": "y" * size}).encode(text)
    async with running(json_ok, replica={"engine": "vllm"}, priority=LIMITED) as router:
        answer = await router.ask(post_json(CHAT, body, "content-encoding: gzip"), "POST")
        assert answer.status == 200
        (seen,) = (seen for seen in router.replica.requests if seen.method == "POST")
        assert json.loads(seen.body)["priority"] != URGENT["priority"]


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@scenario
async def test_the_priority_is_the_routers(engine: str, coding: str) -> None:
    body = json.dumps({**URGENT, "rid": "victim"}).encode()
    async with running(json_ok, replica={"engine": engine}, priority=LIMITED) as router:
        answer = await router.ask(post_json(CHAT, body, f"content-encoding: {coding}"), "POST")
        assert answer.status == 200
        (seen,) = (seen for seen in router.replica.requests if seen.method == "POST")
        assert b"-1000000" not in bytes(seen.body)
        if engine == "sglang":  # the engine that aborts a request by the name in `rid`
            assert json.loads(seen.body)["rid"] != "victim"


@pytest.mark.parametrize("coding", CODINGS)
@routed(json_ok, replica={"engine": "vllm"}, priority=LIMITED)
async def test_a_priority_that_is_not_rewritten_is_refused(router: Router, coding: str) -> None:
    field = f"content-encoding: {coding}"
    kind = "content-type: multipart/form-data; boundary=b"
    audio = request("/v1/audio/transcriptions", kind, field, method="POST", body=FORM)
    for asked in (post_json(BATCH, URGENT, field), audio):
        assert_error(await router.ask(asked, "POST"), Reason.BAD_PRIORITY, 400)
    assert [seen for seen in router.replica.requests if seen.method == "POST"] == []
