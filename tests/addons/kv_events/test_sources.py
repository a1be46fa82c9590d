"""KV event publishers: read from replicas' answers or the configuration; invalid publishers."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from router.addons.kv_events.watcher import configured
from router.config.model import KvEvents
from router.fleet.engines.common.publishers import Source
from router.fleet.engines.sglang import read_kv_events as from_sglang
from router.fleet.engines.vllm import read_event_sources as from_vllm

HOST = "gpu-1"


def vllm(**entries: dict[str, Any]) -> list[Source]:
    whole = {
        rank[1:]: {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": "tcp://*:5557",
            "replay_endpoint": None,
            "buffer_steps": 10000,
            "hwm": 100000,
            "max_queue_size": 100000,
            "topic": "",
            **entry,
        }
        for rank, entry in entries.items()
    }
    return from_vllm(json.dumps(whole).encode(), HOST)


def sglang(**entry: Any) -> list[Source]:
    whole = {
        "publisher": "zmq",
        "endpoint_host": "*",
        "endpoint_port_base": 5557,
        "topic": "",
        "block_size": 64,
        "dp_size": 1,
        "load_endpoint_port_base": 6000,
        "load_topic": "load",
        "replay_endpoint_port_base": 5558,
        **entry,
    }
    return from_sglang(json.dumps({"kv_events": whole, "tp_size": 1}).encode(), HOST)


def test_vllm() -> None:
    assert vllm(_0={}) == [Source("tcp://gpu-1:5557")]
    assert vllm(_0={"replay_endpoint": "tcp://*:5558", "topic": "kv"}) == [
        Source("tcp://gpu-1:5557", "tcp://gpu-1:5558", "kv")
    ]


def test_vllm_ranks() -> None:
    # One entry per rank with its own port, or the same port in each: rank r is at port + r.
    assert vllm(_0={}, _1={"endpoint": "tcp://*:5558"}) == [
        Source("tcp://gpu-1:5557"),
        Source("tcp://gpu-1:5558", rank=1),
    ]
    assert vllm(_0={"replay_endpoint": "tcp://*:6557"}, _1={"replay_endpoint": "tcp://*:6557"}) == [
        Source("tcp://gpu-1:5557", "tcp://gpu-1:6557"),
        Source("tcp://gpu-1:5558", "tcp://gpu-1:6558", rank=1),
    ]


@pytest.mark.parametrize(
    "entry",
    [
        {"enable_kv_cache_events": False},
        {"publisher": "null"},
        {"endpoint": "tcp://router:5557"},  # such a publisher connects instead of binding
        {"endpoint": "tcp://*:0"},
        {"endpoint": "tcp://*:\uff15\uff15\uff15\uff17"},
        {"endpoint": "tcp://*:" + "9" * 5000},
        {"endpoint": "tcp://*:99999"},
        {"endpoint": "tcp://*"},
        {"endpoint": "udp://*:5557"},
        {"endpoint": None},
        {"endpoint": 7},
    ],
)
def test_vllm_without_a_publisher_to_connect_to(entry: dict[str, Any]) -> None:
    assert vllm(_0=entry) == []


def test_sglang() -> None:
    assert sglang() == [Source("tcp://gpu-1:5557", "tcp://gpu-1:5558")]
    assert sglang(endpoint_host="10.0.0.7", replay_endpoint_port_base=None) == [
        Source("tcp://10.0.0.7:5557")
    ]
    assert sglang(dp_size=2, replay_endpoint_port_base=6557) == [
        Source("tcp://gpu-1:5557", "tcp://gpu-1:6557"),
        Source("tcp://gpu-1:5558", "tcp://gpu-1:6558", rank=1),
    ]


@pytest.mark.parametrize(
    "entry",
    [
        {"publisher": "null"},
        {"endpoint_port_base": None},
        {"endpoint_port_base": 70000},
        {"endpoint_host": 7},
    ],
)
def test_sglang_without_a_publisher(entry: dict[str, Any]) -> None:
    assert sglang(**entry) == []


def test_the_configuration() -> None:
    settings = KvEvents(endpoint="tcp://*:5557", replay="tcp://10.0.0.7:5558", topic="kv")
    assert configured(settings, HOST) == [Source("tcp://gpu-1:5557", "tcp://10.0.0.7:5558", "kv")]
    assert configured(KvEvents(endpoint="tcp://0.0.0.0:1"), "::1") == [Source("tcp://[::1]:1")]
    assert configured(KvEvents(endpoint="tcp://[fe80::1]:1"), HOST) == [Source("tcp://[fe80::1]:1")]
    assert configured(KvEvents(endpoint="ipc:///run/kv"), HOST) == [Source("ipc:///run/kv")]
    assert configured(KvEvents(endpoint="gpu-1:5557"), HOST) == []


def test_each_configured_rank_has_the_next_port() -> None:
    settings = KvEvents(endpoint="tcp://*:5557", replay="tcp://10.0.0.7:6557", topic="kv")
    assert configured(settings, HOST, range(3)) == [
        Source(f"tcp://gpu-1:{5557 + rank}", f"tcp://10.0.0.7:{6557 + rank}", "kv", rank)
        for rank in range(3)
    ]


@given(st.binary() | st.text().map(str.encode))
def test_nonsense_is_no_source(raw: bytes) -> None:
    assert from_vllm(raw, HOST) == []
    assert from_sglang(raw, HOST) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
NAMES = (
    *("publisher", "endpoint", "replay_endpoint", "topic", "enable_kv_cache_events"),
    *("endpoint_host", "endpoint_port_base", "dp_size"),
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, JSON)))
def test_odd_fields_never_raise(entry: dict[str, Any]) -> None:
    entry.setdefault("publisher", "zmq")
    for found in (vllm(_0=entry), sglang(**entry)):
        assert all(source.endpoint.startswith(("tcp://", "ipc://")) for source in found)
