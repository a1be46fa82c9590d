"""curl: whole answers, streams, HTTP/1.0, HEAD, Expect, a half-close."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.clients.conftest import MODEL, Served

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
JSON = ["-H", "Content-Type: application/json"]

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def curl(*arguments: str) -> str:
    """Run curl and return its output. Fails if a response is truncated."""
    done = subprocess.run(
        ["curl", "--silent", "--show-error", "--max-time", "20", "--noproxy", "*", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def body(**extra: object) -> str:
    return json.dumps({**CHAT, **extra})


def test_a_whole_answer(served: Served) -> None:
    out = curl(*JSON, "-d", body(), f"{served.v1}/chat/completions")
    assert json.loads(out)["choices"]


@pytest.mark.parametrize("version", ["--http1.1", "--http1.0", "--http2"])
def test_a_stream(served: Served, version: str) -> None:
    out = curl("-N", version, *JSON, "-d", body(stream=True), f"{served.v1}/chat/completions")
    assert out.rstrip().endswith("data: [DONE]")


def test_two_requests_on_one_connection(served: Served) -> None:
    url = f"{served.v1}/models"
    out = curl("-w", "%{num_connects} ", "-o", "/dev/null", url, "-o", "/dev/null", url)
    assert out.split() == ["1", "0"]


def test_head(served: Served) -> None:
    out = curl("--head", f"{served.v1}/models")
    assert out.startswith("HTTP/1.1 ")


def test_expect_continue_with_a_large_body(served: Served, tmp_path: Path) -> None:
    large = tmp_path / "body.json"
    large.write_bytes(body().encode() + b" " * (2 << 20))
    out = curl(
        *JSON,
        "-H",
        "Expect: 100-continue",
        "--expect100-timeout",
        "15",
        "-w",
        "\n%{http_code}",
        "--data-binary",
        f"@{large}",
        f"{served.v1}/chat/completions",
    )
    assert out.endswith("\n200")


def test_a_refused_upload_is_readable(served: Served, tmp_path: Path) -> None:
    large = tmp_path / "body.bin"
    with large.open("wb") as file:
        file.truncate(70 << 20)
    out = curl(
        *JSON, "-w", "\n%{http_code}", "-T", str(large), "-X", "POST", f"{served.v1}/completions"
    )
    assert out.endswith("\n413")
    assert json.loads(out.rpartition("\n")[0])["error"]["code"] == "body_too_large"


def test_an_error_says_why(served: Served) -> None:
    out = curl("-w", "\n%{http_code}", *JSON, "-d", "{", f"{served.v1}/chat/completions")
    assert out.endswith("\n400")
    assert json.loads(out.rpartition("\n")[0])["error"]["code"] == "bad_json"


def test_a_half_close(served: Served) -> None:
    """`nc` closes its sending side at the end of its input; the configuration allows it."""
    text = body()
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as sock:
        sock.sendall(
            (
                "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}"
            ).encode()
        )
        sock.shutdown(socket.SHUT_WR)
        with sock.makefile("rb") as file:
            answer = file.read()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"choices"' in answer
