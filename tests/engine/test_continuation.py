"""An engine is killed in the middle of a stream, and another one continues the text.

With temperature 0 the client gets exactly the text of an undisturbed engine, or the text that the
other engine generates if it is asked directly to continue the first part: on some CPUs, the results
for the tokens of a prompt differ a little from those for generated tokens, so of two tokens that
are nearly equal the other one may be chosen. It is one stream with one id, one role, one end, and
a correct usage. Without `continuation.enabled` the stream is visibly truncated
(`test_replica_loss`).

The events carry counts (`continuous_usage_stats`), because a busy engine puts several tokens into
one event, and the token limit must be kept exactly here.
"""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine.loads import bodies, sse
from tests.engine.loads.load import CHAT
from tests.engine.machine.favourite import preferring
from tests.engine.machine.fleet import Engine, Engines, Hedgerow
from tests.engine.machine.processes import eventually, members_of_group

pytest.importorskip("router.addons.continuation")


COMPLETIONS = "/v1/completions"
TOKENS = 160
KILLED_AFTER = 40  # characters (= tokens) of the answer
# Without a penalty, the tiny model soon repeats one letter, and text continued at a wrong position
# would not be noticed. With a penalty, rare letters occur whose positions reveal a shifted text.
# The penalty covers the prompt as well as the answer, so that it is the same for both engines.
VARIED = {"repetition_penalty": 2.0}
TIMEOUT_S = 120.0


@pytest.fixture
def continuing(engines: Engines, tmp_path: Path) -> Iterator[Hedgerow]:
    with preferring(*engines, tmp_path, continuation={"enabled": True}) as router:
        yield router


def undisturbed(engine: Engine, path: str, body: dict[str, Any]) -> list[str]:
    answer = httpx.post(f"{engine.url}{path}", json=body, timeout=TIMEOUT_S)
    assert answer.status_code == 200, answer.text
    return sse.events(answer.content)


def continued(engine: Engine, path: str, body: dict[str, Any], begin: str) -> str:
    """What an engine generates if it is asked directly to continue a text."""
    body = {**body, "stream": False, "max_tokens": TOKENS - len(begin)}
    body.pop("stream_options")
    if path == CHAT:
        said = {"role": "assistant", "content": begin}
        body["messages"] = [*body["messages"], said]
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    else:
        body["prompt"] += begin
    answer = httpx.post(f"{engine.url}{path}", json=body, timeout=TIMEOUT_S)
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    text: str = choice["text"] if path == COMPLETIONS else choice["message"]["content"]
    return text


def is_continued(
    engine: Engine, path: str, body: dict[str, Any], text: str, undisturbed_text: str
) -> bool:
    """Whether a text is one that the engine has continued at some place after `KILLED_AFTER`."""
    pairs = enumerate(zip(text, undisturbed_text, strict=False))
    same = next((at for at, (one, other) in pairs if one != other), len(text))
    return text == undisturbed_text or any(
        continued(engine, path, body, text[:seam]) == text[seam:]
        for seam in range(KILLED_AFTER, same + 1)
    )


def whole(engine: Engine) -> None:
    """All processes of the engine are killed: the connection ends in the middle of the stream."""
    engine.kill()


def core_alone(engine: Engine) -> None:
    """The engine's core process is killed: the server reports the error inside the stream."""
    members = members_of_group(engine.group)
    named = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in members}
    (core,) = [pid for pid, name in named.items() if b"EngineCore" in name]
    os.kill(core, signal.SIGKILL)


def killed_after(
    characters: int, kill: Callable[[], None], router: Hedgerow, path: str, body: dict[str, Any]
) -> list[str]:
    """The events of a stream whose engine is killed after this much text."""
    raw = b""
    alive = True
    with httpx.stream("POST", f"{router.url}{path}", json=body, timeout=TIMEOUT_S) as answer:
        assert answer.status_code == 200, answer.read()
        for chunk in answer.iter_raw():
            raw += chunk
            events = raw[: raw.rfind(b"\n\n") + 2] if b"\n\n" in raw else b""
            if alive and len("".join(map(sse.text_of, sse.events(events)))) >= characters:
                kill()
                alive = False
    assert not alive, "the stream ended before its engine was killed"
    return sse.events(raw)


@pytest.mark.parametrize(
    ("path", "body", "dies"),
    [
        (CHAT, bodies.chat("to be continued", TOKENS, **VARIED), whole),
        (COMPLETIONS, bodies.completion("to be continued", TOKENS, **VARIED), core_alone),
    ],
    ids=["chat", "completion"],
)
def test_a_killed_engines_stream_is_finished_by_the_other(
    engines: Engines,
    continuing: Hedgerow,
    path: str,
    body: dict[str, Any],
    dies: Callable[[Engine], None],
) -> None:
    killed, survivor = engines
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {**body, "stream": True, "stream_options": options}
    expected = undisturbed(survivor, path, body)
    assert len("".join(map(sse.text_of, expected))) == TOKENS
    before = survivor.state()
    events = killed_after(KILLED_AFTER, lambda: dies(killed), continuing, path, body)
    killed.kill()  # a server outlives its core for a while and must not disturb the next test

    assert events[-1] == sse.DONE
    found, wanted = bodies.gist(events), bodies.gist(expected)
    text, undisturbed_text = found.pop("text")[0], wanted.pop("text")[0]
    assert found == wanted
    chunks = [json.loads(event) for event in events[:-1]]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert len({chunk["model"] for chunk in chunks}) == 1
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    roles = [choice["delta"]["role"] for choice in choices if choice.get("delta", {}).get("role")]
    assert roles == (["assistant"] if path == CHAT else [])
    assert sum(choice["finish_reason"] is not None for choice in choices) == 1

    # The other engine generated only the rest.
    made = survivor.state().generated_tokens - before.generated_tokens
    assert 0 < made <= TOKENS - KILLED_AFTER
    assert len(text) == TOKENS
    assert is_continued(survivor, path, body, text, undisturbed_text), (text, undisturbed_text)
    [record] = eventually(continuing.records, TIMEOUT_S, "it is in the access log")
    assert record["status"] == 200
    assert [attempt[0] for attempt in record["attempts"]] == [killed.name, survivor.name]
