"""Request views that the router creates from real bodies, with tools, adapters and sessions."""

import json
from typing import Any, Final

from policies.contract import RequestView
from router.intake.body import read_fields
from router.intake.prompt import prompt_blocks
from router.intake.routes import POSTS

BLOCK_BYTES: Final = 64
BLOCKS_MOST: Final = 512
_TOOL: Final = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks up a word. " * 20,
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
    },
}
_TURNS: Final = [
    {"role": "system", "content": "You answer in one sentence. " * 10},
    {"role": "user", "content": "What is a heron? " * 10},
]
_BODIES: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("/v1/chat/completions", {"model": "base", "messages": _TURNS}),
    ("/v1/chat/completions", {"model": "base", "messages": _TURNS, "tools": [_TOOL]}),
    ("/v1/chat/completions", {"model": "adapter", "messages": _TURNS, "tools": [_TOOL]}),
    ("/v1/chat/completions", {"model": "base", "messages": _TURNS, "cache_salt": "one"}),
    ("/v1/chat/completions", {"messages": []}),
    ("/v1/completions", {"model": "adapter", "prompt": "Once upon a time " * 300}),
    ("/v1/completions", {"model": "base", "prompt": [1, 2, 3] * 200}),
    ("/v1/responses", {"model": "base", "input": "Go on. " * 40, "previous_response_id": "resp_1"}),
    ("/v1/messages", {"model": "base", "system": "Short. " * 30, "messages": _TURNS[1:]}),
    ("/v1/embeddings", {"model": "base", "input": "A text without a cached prefix."}),
)


def _view(path: str, body: dict[str, Any], session: str | None) -> RequestView:
    route = POSTS[path.encode()]
    raw = json.dumps(body).encode()
    fields = read_fields(route, [raw], len(raw), b"application/json", None)
    blocks, prompt_bytes = prompt_blocks(route.kind, fields, BLOCK_BYTES, BLOCKS_MOST, b"")
    return RequestView(
        route.kind,
        body.get("model"),
        True,
        len(raw),
        prompt_bytes=prompt_bytes,
        prompt_tokens=prompt_bytes // 4,
        blocks=blocks,
        block_tokens=BLOCK_BYTES / 4.0,
        session=session,
    )


def real_views() -> list[RequestView]:
    """Each body without a session, with a session of its own, and with a shared session."""
    return [
        _view(path, body, session)
        for number, (path, body) in enumerate(_BODIES)
        for session in (None, f"conversation {number}", "shared")
    ]
