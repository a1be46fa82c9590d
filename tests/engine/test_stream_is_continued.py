"""An engine dies in the middle of a stream, and the other one says the rest, word for word.

The events tell their counts (`continuous_usage_stats`), because a busy engine puts several tokens
into one event, and the limit is to be kept to the token here.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine import bodies, sse
from tests.engine.fleet import Engine, Hedgerow
from tests.engine.processes import eventually, members_of_group
from tests.engine.test_streams import direct_text

TOKENS = 400
BREAKS_AFTER = 60  # events
TIMEOUT_S = 120.0
STREAMED = {
    "stream": True,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
}
ASKED = {
    "chat": ("/v1/chat/completions", bodies.chat("go on and on", TOKENS, **STREAMED)),
    "completion": ("/v1/completions", bodies.completion("go on and on", TOKENS, **STREAMED)),
}

Engines = tuple[Engine, Engine]


@pytest.fixture
def continuing(engines: Engines, tmp_path: Path) -> Iterator[Hedgerow]:
    config = tmp_path / "continuing.yaml"
    config.write_text("continuation: {enabled: true}\n")
    urls = [engine.url for engine in engines]
    router = Hedgerow(urls, tmp_path / "continuing.log", "--config", str(config))
    with ExitStack() as stack:
        stack.callback(router.kill)
        router.start()
        router.wait_until_ready()
        yield router


def kill(engine: Engine) -> None:
    """All of it: the connection ends in the middle."""
    engine.kill()


def kill_core(engine: Engine) -> None:
    """Its core alone: the server lives to tell of it inside the stream."""
    members = members_of_group(engine.group)
    named = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in members}
    (core,) = [pid for pid, name in named.items() if b"EngineCore" in name]
    os.kill(core, signal.SIGKILL)


@pytest.mark.parametrize("dies", [kill, kill_core])
@pytest.mark.parametrize("asked", ["chat", "completion"])
def test_the_rest_is_what_it_would_have_been(
    engines: Engines, continuing: Hedgerow, asked: str, dies: Callable[[Engine], None]
) -> None:
    path, body = ASKED[asked]
    expected = direct_text(engines[0], path, body)
    assert len(expected) == TOKENS
    raw = stream_until_it_breaks(continuing, path, body, engines, dies)

    events = sse.events(raw)
    assert events[-1] == sse.DONE
    chunks = [json.loads(event) for event in events[:-1]]
    assert "".join(map(sse.text_of, events)) == expected
    assert len({(chunk["id"], chunk["created"]) for chunk in chunks}) == 1
    assert sum(has_role(chunk) for chunk in chunks) == (1 if asked == "chat" else 0)
    usage = chunks[-1]["usage"]
    assert usage["completion_tokens"] == TOKENS
    assert usage["prompt_tokens"] == chunks[0]["usage"]["prompt_tokens"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + TOKENS
    eventually(lambda: bool(continuing.records()), TIMEOUT_S, "the access log has it")
    (record,) = continuing.records()
    assert [kind for _, kind, _, _ in record["attempts"]] == ["primary", "continuation"]


def stream_until_it_breaks(
    router: Hedgerow,
    path: str,
    body: dict[str, Any],
    engines: Engines,
    dies: Callable[[Engine], None],
) -> bytes:
    """A whole stream, in the middle of which the engine died that was at it."""
    raw = b""
    lost = None
    with httpx.stream("POST", f"{router.url}{path}", json=body, timeout=TIMEOUT_S) as answer:
        for piece in answer.iter_raw():
            raw += piece
            if lost is None and raw.count(b"\n\n") > BREAKS_AFTER:
                (lost,) = [engine for engine in engines if engine.state().running]
                dies(lost)
    assert lost is not None
    return raw


def has_role(chunk: dict[str, Any]) -> bool:
    return any("role" in choice.get("delta", {}) for choice in chunk["choices"])
