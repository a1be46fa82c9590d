"""curl: whole answers, streams, HTTP/1.0, offers of HTTP/2, HEAD, Expect, a half-close."""

import json
from pathlib import Path

import pytest

from tests.clients.conftest import MODEL, Served, serving
from tests.clients.programs import program, run
from tests.places import LOOPBACK_CERT, LOOPBACK_KEY

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
JSON = ["-H", "Content-Type: application/json"]


QUIETLY = ["--silent", "--show-error", "--max-time", "15", "--noproxy", "*"]


def curl(*arguments: str) -> str:
    """Run curl and return its output. Fails if a response is truncated."""
    status, out, err = run([program("curl"), *QUIETLY, *arguments])
    assert status == 0, err
    return out


def body(**extra: object) -> str:
    return json.dumps({**CHAT, **extra})


@pytest.mark.parametrize("version", ["--http1.1", "--http1.0", "--http2"])
def test_a_stream(served: Served, version: str) -> None:
    out = curl("-N", version, *JSON, "-d", body(stream=True), f"{served.v1}/chat/completions")
    assert out.rstrip().endswith("data: [DONE]")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("framing", ["content-length", "chunked"])
@pytest.mark.parametrize("offer", ["h2c", "TLS/1.2", "another/1.0, h2c"])
def test_an_offer_of_another_protocol_is_ignored(
    served: Served, offer: str, framing: str, stream: bool
) -> None:
    """The second request is sent on the same connection, in HTTP/1.1 (RFC 9110 section 7.8)."""
    offers = ["--http2"]
    if offer != "h2c":
        offers = ["-H", "Connection: Upgrade", "-H", f"Upgrade: {offer}"]
    if framing == "chunked":
        offers += ["-H", "Transfer-Encoding: chunked"]
    written = "\n%{http_code} %{http_version} %{num_connects}\n"
    url = f"{served.v1}/chat/completions"
    out = curl(*offers, *JSON, "-d", body(stream=stream), "-w", written, url, url)
    assert "\n200 1.1 1\n" in out
    assert out.endswith("\n200 1.1 0\n")


def test_http2_without_an_offer_is_refused_at_once(served: Served) -> None:
    """GOAWAY with the error HTTP_1_1_REQUIRED: a client can tell why (RFC 9113 section 7)."""
    status, _, err = run(
        [program("curl"), *QUIETLY, "-v", "--http2-prior-knowledge", f"{served.v1}/models"]
    )
    assert status not in (0, 28), err  # 28: a timeout
    assert "GOAWAY, error=13" in err


def test_http2_is_not_negotiated_in_tls(tmp_path: Path) -> None:
    with serving(tmp_path, f"tls: {{cert: '{LOOPBACK_CERT}', key: '{LOOPBACK_KEY}'}}\n") as router:
        url = f"https://127.0.0.1:{router.port}/v1/models"
        out = curl("--http2", "--cacert", LOOPBACK_CERT, "-w", "\n%{http_version}", url)
    assert MODEL in out
    assert out.endswith("\n1.1")


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
