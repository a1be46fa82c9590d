"""The tenant `acme`: its key, a keys file with its limits, an engine that reports token counts."""

from pathlib import Path
from typing import Any

from router.config.keys import KeyLine, hash_of, line_of
from router.config.model import Keys
from tests.app.pages import page
from tests.harness.messages import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    chunk,
    event,
    json_response,
    role,
    token,
)
from tests.harness.replica import ReplicaConnection
from tests.harness.running import Router

ACME = "Authorization: Bearer acme-key"
TOLD = {
    "prompt_tokens": 1000,
    "completion_tokens": 100,
    "total_tokens": 1100,
    "prompt_tokens_details": {"cached_tokens": 600},
}
USED = 1100  # the tokens of each answer of `tells`


def keys(folder: Path, name: str = "acme", **limits: Any) -> Keys:
    path = folder / "keys.jsonl"
    path.write_text(line_of(KeyLine(name=name, hash=hash_of(b"acme-key"), **limits)) + "\n")
    return Keys(file=str(path))


async def tells(connection: ReplicaConnection) -> None:
    """A whole or streamed answer with its token counts."""
    while asked := await connection.recv_request():
        if asked.json().get("stream"):
            told = event(
                {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": TOLD}
            )
            events = (role(), token("a"), token("b", "stop"), told, DONE)
            await connection.send(SSE_HEAD, *map(chunk, events), LAST_CHUNK)
        else:
            whole = {"id": "c", "object": "chat.completion", "choices": [{"index": 0}]}
            await connection.send(json_response({**whole, "usage": TOLD}))


async def tenants(router: Router) -> dict[str, Any]:
    """The usage of all tenants, by name."""
    return {each.pop("tenant"): each for each in (await page(router, "/usage"))["tenants"]}
