"""A page in Chromium, served from another origin than the router's, with keys required.

The browser asks for permission with a preflight, which has no key, and shows the page no answer
without the right headers: errors and model lists included.
"""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from tests.clients.conftest import KEY, LONGEST_BODY, MIB, Served, required_key, serving
from tests.clients.programs import LIMIT_S, program, started
from tests.harness.ports import free_port

PAGE = Path(__file__).parent / "scripts" / "page.html"
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--no-proxy-server"),
)


class Pages(BaseHTTPRequestHandler):
    """Sends the page, and keeps what it posts."""

    results: Queue[dict[str, Any]]

    def do_GET(self) -> None:
        self._answer(PAGE.read_bytes())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self._answer(b"")
        self.results.put(json.loads(body))

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Site(NamedTuple):
    """The origin of the page, and the router that it uses."""

    port: int
    router: Served
    results: Queue[dict[str, Any]]  # what the page posted


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The page's server, and a router that allows its origin at 127.0.0.1, not at localhost."""
    program("chromium")
    folder = tmp_path_factory.mktemp("site")
    results: Queue[dict[str, Any]] = Queue()
    handler = type("Handler", (Pages,), {"results": results})
    with ThreadingHTTPServer(("127.0.0.1", free_port()), handler) as server:
        port = server.server_port
        settings = (
            f"{required_key(folder)}limits: {{body: {LONGEST_BODY}}}\n"
            "timeouts: {commit_after: 0.1}\n"
            f"cors: {{origins: ['http://127.0.0.1:{port}']}}\n"
        )
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            with serving(folder, settings) as router:
                yield Site(port, router, results)
        finally:
            server.shutdown()
            thread.join()


def browse(site: Site, folder: Path, host: str) -> dict[str, Any]:
    """Open the page of this host in a browser; return the results of its checks."""
    query = urlencode({"router": site.router.url, "key": KEY, "large": 8 * MIB})
    profile = f"--user-data-dir={folder / 'profile'}"
    words = [program("chromium"), *FLAGS, profile, f"http://{host}:{site.port}/?{query}"]
    with (folder / "output").open("wb") as output, started(words, stdout=output, stderr=output):
        try:
            return site.results.get(timeout=LIMIT_S)
        except Empty:
            raise AssertionError((folder / "output").read_text()) from None


def test_an_allowed_origin_reads_every_answer(site: Site, tmp_path: Path) -> None:
    done = [200, True, "data: [DONE]"]
    assert browse(site, tmp_path, "127.0.0.1") == {
        "stream": done,
        "stream_of_openai": done,
        "stream_of_anthropic": done[:2],
        "early_200": [*done, True],
        "whole": [200, "chat.completion", True],
        "models": ["emulated"],
        "model": "emulated",
        "no_key": [401, "key_required", True],
        "wrong_key": [401, "key_required", True],
        "wrong_key_and_a_large_body": [401, "key_required", True],
        "too_large": [413, "body_too_large", True],
        "bad_json": [400, "bad_json", True],
        "unknown_model": [404, "model_not_found", True],
        "unknown_path": 404,
        "control_path": [404, "not_found", True],
        "refused_by_the_engine": 400,
        "wrong_method": 405,
    }


def test_another_origin_reads_nothing(site: Site, tmp_path: Path) -> None:
    results = browse(site, tmp_path, "localhost")
    assert set(results.values()) == {"TypeError: Failed to fetch"}
