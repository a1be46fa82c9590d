"""A request that makes a real engine read a foreign KV cache does not reach it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine.machine import environment
from tests.engine.machine.fleet import MODEL, SHIMS, Engine, Hedgerow
from tests.harness.ports import free_port

TIMEOUT_S = 400.0  # on a busy machine, the first request of an engine takes minutes
CONNECTOR = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"}


@pytest.fixture
def pair(logs: Path) -> Iterator[tuple[Engine, Engine]]:
    """Two engines that can read each other's KV cache."""
    built = environment.ensure()
    nixl = environment.ensure_nixl(built)
    made = []
    for name in ("engine-nixl-a", "engine-nixl-b"):
        settings = {
            "PYTHONPATH": f"{SHIMS}:{nixl}",
            "UCX_TLS": "tcp,self,sm,posix,cma",
            "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()),
        }
        flags = ("--kv-transfer-config", json.dumps(CONNECTOR))
        made.append(Engine(name, built, logs, *flags, settings=settings))
    with ExitStack() as stack:
        for engine in made:
            stack.callback(engine.kill)
            engine.start()
        for engine in made:
            engine.wait_until_ready()
        yield made[0], made[1]


def ask(url: str, **members: Any) -> httpx.Response:
    body = {"model": MODEL, "prompt": "one two three " * 60, "max_tokens": 4, **members}
    return httpx.post(f"{url}/v1/completions", json=body, timeout=TIMEOUT_S)


def test_an_unknown_remote_request_reaches_no_engine(
    pair: tuple[Engine, Engine], tmp_path: Path
) -> None:
    prefill, decode = pair
    begin = {"do_remote_decode": True, "do_remote_prefill": False}
    whole = ask(prefill.url, kv_transfer_params=begin).json()
    foreign = {**whole["kv_transfer_params"], "remote_request_id": "unknown"}
    assert foreign["do_remote_prefill"]

    router = Hedgerow([decode.url], tmp_path / "hedgerow.log")
    with ExitStack() as stack:
        stack.callback(router.kill)
        router.start()
        router.wait_until_ready()
        places: list[dict[str, Any]] = [
            {"kv_transfer_params": foreign},
            {"vllm_xargs": {"kv_transfer_params": foreign}},
        ]
        for members in places:
            answer = ask(router.url, **members)
            assert answer.status_code == 400, answer.text
            assert answer.json()["error"]["code"] == "private_member"
        assert ask(router.url).status_code == 200
        assert decode.is_running()
