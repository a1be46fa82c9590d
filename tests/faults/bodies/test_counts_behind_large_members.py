"""Tokens are counted for every form of answer that a client can request.

On request, engines write large members after `usage`, and some routes have their own count fields.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from router.config.keys import KeyLine, hash_of, line_of
from router.config.model import Keys, Prefix
from router.core.errors import Reason
from tests.harness.behaviours import answer
from tests.harness.messages import LAST_CHUNK, chunk, head, json_response, post_json
from tests.harness.running import running, scenario

ACME = "Authorization: Bearer acme-key"
TOLD = {"prompt_tokens": 600, "completion_tokens": 5000, "total_tokens": 5600}
CALL = {"function": {"name": "f", "arguments": {"usage": {"prompt_tokens": 0, "total_tokens": 0}}}}


def answered(value: Any) -> bytes:
    return json_response(value)


def lines(*values: Any) -> bytes:
    """Lines of JSON, one chunk each."""
    fields = ["Content-Type: application/x-ndjson", "Transfer-Encoding: chunked"]
    data = [chunk(json.dumps(value).encode() + b"\n") for value in values]
    return head("HTTP/1.1 200 OK", fields) + b"".join(data) + LAST_CHUNK


LONG = list(range(100_000, 101_000))
LONGER = list(range(100_000, 150_000))  # longer than the part of an answer that the router buffers
OLLAMA = {"done": True, "prompt_eval_count": 600, "eval_count": 5000}
ANSWERS: dict[str, tuple[str, bytes]] = {
    "token ids": (
        "/v1/chat/completions",
        answered({"choices": [], "usage": TOLD, "prompt_token_ids": LONG}),
    ),
    "many token ids": (
        "/v1/chat/completions",
        answered({"choices": [], "usage": TOLD, "prompt_token_ids": LONGER}),
    ),
    "sglang": ("/generate", answered({"text": "y", "meta_info": {**TOLD, "more": LONG}})),
    "sglang, prompts": (
        "/generate",
        answered([{"meta_info": {"prompt_tokens": 60, "completion_tokens": 500}}] * 10),
    ),
    "ollama": ("/api/chat", answered({"message": {"tool_calls": [CALL]}, **OLLAMA})),
    "ollama, lines": (
        "/api/generate",
        lines(*[{"response": "a"}] * 3, {"context": LONG, **OLLAMA}),
    ),
    "tgi": (
        "/generate",
        answered({"generated_text": "y", "details": {"generated_tokens": 5600, "tokens": LONG}}),
    ),
    "nothing": ("/generate", answered({"generated_text": "y" * 24_000})),
    "nothing, lines": ("/api/generate", lines(*[{"response": "a"}] * 5600)),
}


@pytest.mark.parametrize("name", ANSWERS)
@scenario
async def test_its_tokens_are_counted(tmp_path: Path, name: str) -> None:
    """5600 tokens, reported or relayed, are more than the key may use per minute."""
    path, data = ANSWERS[name]
    file = tmp_path / "keys.jsonl"
    line = KeyLine(name="acme", hash=hash_of(b"acme-key"), tokens_per_minute=2000)
    file.write_text(line_of(line) + "\n")
    async with running(answer(data), keys=Keys(file=str(file)), prefix=Prefix()) as router:
        sent = post_json(path, {"model": "m", "prompt": "x"}, ACME)
        assert (await router.ask(sent, "POST")).status == 200
        (line_,) = await router.log()
        assert line_["output_tokens"] >= 5000
        assert (await router.ask(sent, "POST")).status == 429
        assert (await router.log(2))[1]["reason"] == Reason.KEY_TOKENS.value
