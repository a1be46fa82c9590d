"""The JDK's HttpClient and Node's fetch: answers, streams, and refusals of large bodies.

With its default settings, the JDK's client offers an upgrade to HTTP/2 with every first request.
"""

import atexit
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, NamedTuple

import pytest

from tests.clients.conftest import KEY, MIB, MODEL, Served
from tests.clients.programs import program, run

SCRIPTS = Path(__file__).parent / "scripts"
CHATS = "/v1/chat/completions"
CHAT: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "hello"}],
    "max_tokens": 3,
}


class Answer(NamedTuple):
    """One answer as the client printed it."""

    status: str  # or the error that the client raised
    lines: list[str]  # of the body

    def json(self) -> dict[str, Any]:
        return dict(json.loads("\n".join(self.lines)))


@cache
def jdk_classes() -> str:
    """The folder of the compiled client, which is removed at the end of the process."""
    folder = mkdtemp(prefix="hedgerow-test-jdk-")
    atexit.register(rmtree, folder, ignore_errors=True)
    status, _, err = run([program("javac"), "-d", folder, SCRIPTS / "Client.java"])
    assert status == 0, err
    return folder


def jdk(version: str) -> list[str | Path]:
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]  # the program runs for a second
    return [program("java"), *quick, f"-Dversion={version}", "-cp", jdk_classes(), "Client"]


def node() -> list[str | Path]:
    return [program("node"), SCRIPTS / "client.mjs"]


CLIENTS: dict[str, Callable[[], list[str | Path]]] = {
    "jdk": lambda: jdk("HTTP_2"),
    "jdk-http1": lambda: jdk("HTTP_1_1"),
    "node": node,
}
EVERY_CLIENT = pytest.mark.parametrize("client", CLIENTS)
EVERY_FRAMING = pytest.mark.parametrize("framing", ["length", "chunked"])


def ask(
    client: str,
    url: str,
    *,
    key: str = KEY,
    framing: str = "length",
    padding: int = 0,
    times: int = 1,
    **extra: object,
) -> list[Answer]:
    """Send the same request several times, one after the other."""
    body = json.dumps({**CHAT, **extra})
    end = [url, key, framing, str(padding), str(times), body]
    status, out, err = run([*CLIENTS[client](), *end])
    assert status == 0, err
    answers: list[Answer] = []
    for line in out.splitlines():
        if line.startswith("= "):
            answers.append(Answer(line[2:], []))
        elif line:
            answers[-1].lines.append(line)
    assert len(answers) == times, (out, err)
    return answers


@EVERY_CLIENT
@EVERY_FRAMING
def test_a_whole_answer(served: Served, client: str, framing: str) -> None:
    for answer in ask(client, served.url + CHATS, framing=framing, times=2):
        assert answer.status == "200", answer
        assert answer.json()["choices"]


@EVERY_CLIENT
@EVERY_FRAMING
def test_a_stream(guarded: Served, client: str, framing: str) -> None:
    url = guarded.url + CHATS
    for answer in ask(client, url, framing=framing, times=2, stream=True):
        assert answer.status == "200", answer
        assert all(line.startswith("data: ") for line in answer.lines)
        assert len(answer.lines) > CHAT["max_tokens"]
        assert answer.lines[-1] == "data: [DONE]"


@EVERY_CLIENT
def test_models(served: Served, client: str) -> None:
    (answer,) = ask(client, f"{served.v1}/models", framing="none")
    assert answer.status == "200", answer
    assert MODEL in answer.lines[0]


@EVERY_FRAMING
@pytest.mark.parametrize(("client", "times"), [("jdk", 5), ("node", 20)])
@pytest.mark.parametrize(
    ("path", "key", "size", "refusal"),
    [
        pytest.param(CHATS, "wrong", 4 * MIB, ("401", "key_required"), id="key-4-mib"),
        pytest.param(CHATS, "wrong", 8 * MIB, ("401", "key_required"), id="key-8-mib"),
        pytest.param(CHATS, KEY, 4 * MIB, ("413", "body_too_large"), id="size-4-mib"),
        pytest.param(CHATS, KEY, 8 * MIB, ("413", "body_too_large"), id="size-8-mib"),
        pytest.param("/metrics", KEY, 8 * MIB, ("404", "not_found"), id="control-path"),
    ],
)
def test_a_refusal_of_a_large_body_is_read(
    guarded: Served,
    client: str,
    times: int,
    framing: str,
    path: str,
    key: str,
    size: int,
    refusal: tuple[str, str],
) -> None:
    """The client may still be sending when it is refused. It must not see a broken connection."""
    answers = ask(client, guarded.url + path, key=key, framing=framing, padding=size, times=times)
    found = [
        (answer.status, answer.json()["error"]["code"] if answer.lines else "")
        for answer in answers
    ]
    assert found == [refusal] * times


@EVERY_CLIENT
def test_an_error_of_the_engine_is_read(served: Served, client: str) -> None:
    (answer,) = ask(client, served.url + CHATS, framing="chunked", max_tokens=-1)
    assert answer.status == "400", answer
    assert answer.json()["error"]
