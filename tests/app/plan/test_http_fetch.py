"""GET on a Prometheus server: the token, errors, and redirects."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from router.lab.plan.sources.prometheus_api import PrometheusError, basic, bearer, fetcher


class Handler(BaseHTTPRequestHandler):
    status: ClassVar[int] = 200
    body: ClassVar[bytes] = b"{}"
    seen: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers.get("Authorization")))
        self.send_response(self.status)
        if 300 <= self.status < 400:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(
    status: int = 200, body: bytes = b"{}", base: type[Handler] = Handler
) -> Iterator[tuple[str, type[Handler]]]:
    handler = type("Own", (base,), {"status": status, "body": body, "seen": []})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_the_body_and_the_token() -> None:
    with serving(body=b"hello") as (url, handler):
        assert fetcher(bearer("secret"))(f"{url}/a?query=b") == b"hello"
        assert fetcher(basic("me:it"))(f"{url}/b") == b"hello"
        assert fetcher()(f"{url}/c") == b"hello"
    assert handler.seen == [("/a?query=b", "Bearer secret"), ("/b", "Basic bWU6aXQ="), ("/c", None)]


def test_mistakes_in_the_credentials(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must contain USER:PASSWORD"):
        basic("me")
    with pytest.raises(FileNotFoundError) as missing:
        fetcher("", str(tmp_path / "ca.pem"))
    assert missing.value.filename == str(tmp_path / "ca.pem")
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(ValueError, match=r"ca\.pem: not a file of certificates"):
        fetcher("", str(tmp_path / "ca.pem"))


def test_a_refusal_in_json_is_left_to_the_reader() -> None:
    with serving(400, b'{"status":"error"}') as (url, _):
        assert fetcher()(url) == b'{"status":"error"}'


@pytest.mark.parametrize("status", [401, 404, 503])
def test_another_refusal_is_an_error(status: int) -> None:
    with (
        serving(status, b"<html>") as (url, _),
        pytest.raises(PrometheusError, match=f"{url}/a: HTTP {status}"),
    ):
        fetcher(bearer("secret"))(f"{url}/a?query=x")


def test_a_redirect_is_refused_because_of_the_token() -> None:
    with (
        serving(302, b"") as (url, handler),
        pytest.raises(PrometheusError, match="HTTP 302"),
    ):
        fetcher(bearer("secret"))(f"{url}/a")
    assert len(handler.seen) == 1


def test_no_server_is_an_error() -> None:
    with serving() as (url, _):
        pass
    with pytest.raises(PrometheusError, match=r"cannot be reached: .*refused"):
        fetcher()(url)
