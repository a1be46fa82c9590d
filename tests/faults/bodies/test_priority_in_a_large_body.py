"""The priority in a body above 8 MiB, which is never rewritten, must not reach an engine.

Tested on the paths on which the router writes no priority number.
"""

import json
from typing import Any

import pytest

from router.config.model import Priority
from router.intake.body import SCAN_ABOVE
from tests.harness.behaviours import json_ok
from tests.harness.messages import post_json
from tests.harness.running import running, scenario

CASES: list[tuple[str, int, list[str], Any]] = [
    ("vllm", -1_000_000, ["/invocations", "/generate", "/v1/messages", "/tokenize"], 0),
    ("sglang", 1_000_000, ["/invocations", "/v1/responses", "/v1/rerank"], None),
    ("trtllm", 1, ["/v1/responses", "/v1/embeddings"], 0.5),
    ("llamacpp", 1, ["/v1/chat/completions"], None),
]
BLANKS = ("/generate", "/v1/responses")
EACH = [(engine, path, n, read) for engine, n, paths, read in CASES for path in paths]


@pytest.mark.parametrize(("engine", "path", "number", "read"), EACH)
@scenario
async def test_the_engine_reads_what_an_absent_one_means(
    engine: str, path: str, number: int, read: Any
) -> None:
    blank = b" " * 5000 if path in BLANKS else b""  # longer than the kept part of a value
    large = b'{"priority":%d%b,"model":"m","messages":[],"pri\\u006frity":%d%b,"x":"%b"}'
    body = large % (number, blank, number, blank, b"y" * SCAN_ABOVE)
    rules = Priority(ceiling="normal")
    async with running(json_ok, replica={"engine": engine}, priority=rules) as router:
        assert (await router.ask(post_json(path, body), "POST")).status == 200
        (seen,) = [r for r in router.replica.requests if r.method == "POST"]
        assert json.loads(seen.body)["priority"] == read
        assert bytes(seen.body).startswith(body[:-1])
