"""The priority in a small body with half a surrogate pair in a name must not reach an engine.

Python's JSON decoder, and so the engines, accept such a name. Most decoders do not.
"""

import json

import pytest

from router.config.model import Priority
from router.intake.members import MEMBERS
from tests.harness.behaviours import json_ok
from tests.harness.messages import post_json
from tests.harness.running import running, scenario

FEW = b""
# With more members, the body cannot be scanned, so it is refused.
MANY = b"".join(b',"a%d":0' % number for number in range(MEMBERS))


@pytest.mark.parametrize("others", [FEW, MANY], ids=["few", "many"])
@pytest.mark.parametrize("engine", ["llamacpp", "sglang", "trtllm", "vllm"])
@scenario
async def test_the_engine_reads_no_priority_of_the_client(engine: str, others: bytes) -> None:
    body = b'{"priority":-9,"\\ud800":0,"model":"m","messages":[],"pri\\u006frity":-9%b}' % others
    rules = Priority(ceiling="normal")
    async with running(json_ok, replica={"engine": engine}, priority=rules) as router:
        status = (await router.ask(post_json("/v1/responses", body), "POST")).status
        assert status == (400 if others else 200)
        if others:
            assert all(request.method != "POST" for request in router.replica.requests)
            return
        (seen,) = [r for r in router.replica.requests if r.method == "POST"]
        forwarded = json.loads(seen.body)
        assert forwarded.pop("priority", None) != -9
        assert forwarded == {k: v for k, v in json.loads(body).items() if k != "priority"}
        assert b"-9" not in seen.body
