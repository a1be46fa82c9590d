"""A request that makes a real engine connect to any host of the client does not reach it."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine.machine import environment
from tests.engine.machine.fleet import MODEL, SHIMS, Engine, Hedgerow, running
from tests.engine.machine.processes import eventually
from tests.harness.ports import free_port

WITHIN_S = 60.0
CONNECTOR = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"}
# As an engine names the KV cache of a request that it has prefilled.
FOREIGN: dict[str, Any] = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_block_ids": [[82, 83, 84, 85, 86, 87]],
    "remote_engine_id": "843dfc11-d496-4814-8fc1-d0d610badc42",
    "remote_request_id": "cmpl-aeb914b13299e83a-0-b5c00e8d",
    "remote_host": "127.0.0.1",
    "tp_size": 1,
    "dcp_size": 1,
    "pp_size": 1,
    "remote_num_tokens": 180,
    "transfer_mode": "pull",
}


@pytest.fixture
def engine(logs: Path) -> Iterator[Engine]:
    """An engine that reads KV caches from other engines."""
    built = environment.ensure()
    settings = {
        "PYTHONPATH": f"{SHIMS}:{environment.ensure_nixl(built)}",
        "UCX_TLS": "tcp,self,sm,posix,cma",
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()),
    }
    flags = ("--kv-transfer-config", json.dumps(CONNECTOR))
    made = Engine("engine-nixl", built, logs, *flags, settings=settings)
    with running(made):
        yield made


def ask(url: str, timeout_s: float = WITHIN_S, **members: Any) -> httpx.Response:
    body = {"model": MODEL, "prompt": "one two three " * 60, "max_tokens": 4, **members}
    return httpx.post(f"{url}/v1/completions", json=body, timeout=timeout_s)


def test_an_engine_connects_nowhere_for_a_client(engine: Engine, tmp_path: Path) -> None:
    router = Hedgerow([engine.url], tmp_path / "hedgerow.log")
    with running(router), socket.create_server(("127.0.0.1", 0)) as stranger:
        stranger.setblocking(False)
        foreign = {**FOREIGN, "remote_port": stranger.getsockname()[1]}

        def has_visitor() -> bool:
            try:
                stranger.accept()[0].close()
            except BlockingIOError:
                return False
            return True

        places: list[dict[str, Any]] = [
            {"kv_transfer_params": foreign},
            {"vllm_xargs": {"kv_transfer_params": foreign}},
        ]
        for members in places:
            answer = ask(router.url, **members)
            assert answer.status_code == 400, answer.text
            assert answer.json()["error"]["code"] == "private_member"
        assert ask(router.url).status_code == 200
        assert not has_visitor()
        # The same request, sent to the engine itself.
        with pytest.raises(httpx.ReadTimeout):
            ask(engine.url, 5.0, **places[0])
        eventually(has_visitor, WITHIN_S, "the engine connects to the stranger")
