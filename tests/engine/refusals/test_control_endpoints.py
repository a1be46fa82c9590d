"""Endpoints that control or describe an engine are blocked on the data port, in every spelling."""

from __future__ import annotations

import http.client

import pytest

from tests.engine.machine.fleet import Engine, Hedgerow

TIMEOUT_S = 30.0

CONTROL = [
    ("GET", "/metrics"),
    ("GET", "/metrics/"),
    ("GET", "/metrics?format=text"),
    ("HEAD", "/metrics"),
    ("GET", "/server_info"),
    ("POST", "/abort_requests"),
    ("POST", "/inference/v1/abort_requests"),  # on vLLM 0.32 open without its developer mode
    ("POST", "/scale_elastic_ep"),
    ("POST", "/sleep"),
    ("POST", "/wake_up"),
    ("POST", "/reset_prefix_cache"),
    ("POST", "/v1/load_lora_adapter"),
    ("POST", "/v1/unload_lora_adapter"),
    ("POST", "/start_profile"),
]
DISGUISED = [
    "//metrics",
    "/./metrics",
    "/v1/../metrics",
    "/%6detrics",
    "/%6Detrics/",
    "/v1/%2e%2e/metrics",
    "/metrics;x=1",
    "/METRICS",
    "/metrics%00",
    "/metrics%2F",
    "http://127.0.0.1/metrics",
]


def ask(router: Hedgerow, method: str, target: str) -> tuple[int, bytes]:
    """One request with its target exactly as given; `http.client` does not normalise it."""
    host, port = router.url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S)
    try:
        headers = {"content-type": "application/json"}
        connection.request(
            method, target, body=b"{}" if method == "POST" else None, headers=headers
        )
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.usefixtures("engines")
def test_control_endpoints_are_not_found(hedgerow: Hedgerow) -> None:
    answers = {f"{method} {path}": ask(hedgerow, method, path) for method, path in CONTROL}
    assert {what: status for what, (status, _) in answers.items() if status != 404} == {}
    # The engine's own 404 would be {"detail": "Not Found"}: none of these requests was forwarded.
    forwarded = [what for what, (_, body) in answers.items() if b'"detail"' in body]
    assert forwarded == []


def test_encoded_paths_are_blocked_too(engines: tuple[Engine, Engine], hedgerow: Hedgerow) -> None:
    for target in DISGUISED:
        status, body = ask(hedgerow, "GET", target)
        assert 400 <= status < 500, target
        assert b"vllm:" not in body, target
    assert all(engine.is_running() for engine in engines)
