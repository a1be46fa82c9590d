"""Starts the installed command in an empty directory, sends it two requests, and stops it.

The command is started as a user starts it: by its path, in a directory that holds none of this
project's files, without a variable that points to the sources.
"""

import json
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import IO, Any
from urllib.request import Request, urlopen

from tests.install.environments import Failed, clean_environ, run

LIMIT_S = 120.0
_QUESTION = {"model": "emulated", "messages": [{"role": "user", "content": "hello"}]}


def ask(command: Path, version: str, build: str) -> None:
    """Check `--version`, the first event, a whole answer, a stream and the end. Raises Failed."""
    with tempfile.TemporaryDirectory(prefix="hedgerow-install-") as name:
        empty = Path(name)
        said = run([command, "--version"], clean_environ(), cwd=empty).strip()
        _expect(said, f"hedgerow {version} ({build})", "--version")
        run([command, "bench", "overhead", "--help"], clean_environ(), cwd=empty)
        with (empty / "access.log").open("w") as log:
            flags = ["serve", "--emulate", "2", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
            process = subprocess.Popen(
                [str(command), *flags],
                cwd=empty,
                env=clean_environ(),
                stdout=log,
                stderr=subprocess.PIPE,
                text=True,
            )
        limit = threading.Timer(LIMIT_S, process.kill)
        limit.start()
        try:
            assert process.stderr is not None
            events = _events_until_ready(process.stderr)
            _expect((events[0]["message"], events[0]["build"]), ("starting", build), "first event")
            _ask_both(f"http://{events[-1]['listen']}/v1/chat/completions")
            process.send_signal(signal.SIGTERM)
            rest = process.stderr.read()
            _expect(process.wait(), 0, f"exit status after SIGTERM (standard error: {rest})")
        finally:
            limit.cancel()
            process.kill()
            process.communicate()
        lines = [json.loads(line) for line in (empty / "access.log").read_text().splitlines()]
        _expect([line["status"] for line in lines], [200, 200], "statuses in the access log")


def _ask_both(url: str) -> None:
    answer = json.loads(_post(url, _QUESTION))
    if not answer["choices"][0]["message"]["content"]:
        raise Failed(f"an answer without content: {answer}")
    events = _post(url, {**_QUESTION, "stream": True}).split("\n\n")
    if events[-2:] != ["data: [DONE]", ""] or len(events) < 4:
        raise Failed(f"an incomplete stream: {events}")


def _post(url: str, body: dict[str, Any]) -> str:
    data, headers = json.dumps(body).encode(), {"content-type": "application/json"}
    with urlopen(Request(url, data, headers), timeout=LIMIT_S) as response:
        text: str = response.read().decode()
        return text


def _events_until_ready(stderr: IO[str]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for line in stderr:
        try:
            events.append(json.loads(line))
        except ValueError:
            raise Failed(f"standard error: {line}{stderr.read()}") from None
        if events[-1]["message"] == "ready":
            return events
    raise Failed(f"ended before it was ready: {events}")


def _expect(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise Failed(f"{what}: {found!r} instead of {wanted!r}")
