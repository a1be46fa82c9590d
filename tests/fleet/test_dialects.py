"""The priority format of a pool is that of its known engines, and changes with detection."""

from typing import Any

import pytest

from router.config.model import Health, Replica as ReplicaConfig
from router.fleet.dialects import MIXED, NONE, UNKNOWN, Dialects, common, spoken
from router.fleet.replica import Replica


def replica(name: str, engine: str | None = None, **config: Any) -> Replica:
    made = Replica(ReplicaConfig(url=f"http://{name}:1", id=name, **config), Health(), None)
    made.engine = engine
    return made


@pytest.mark.parametrize(
    ("engine", "configured", "dialect"),
    [
        ("vllm", None, "vllm"),
        ("sglang", None, "sglang"),
        ("trtllm", None, "trtllm"),
        ("tgi", None, NONE),
        ("llamacpp", None, NONE),
        ("other", None, NONE),
        (None, None, UNKNOWN),
        (None, "trtllm", "trtllm"),
        ("other", "vllm", "vllm"),
        # the engine gets no number, and its clients' numbers are in the engine's format
        ("vllm", "none", "vllm"),
    ],
)
def test_a_replicas_dialect(engine: str | None, configured: Any, dialect: str) -> None:
    assert spoken(replica("r", engine, priority=configured)) == dialect


def test_sglang_may_take_lower_numbers_first() -> None:
    made = replica("r", "sglang")
    made.endpoint.low_first = True
    assert spoken(made) == "sglang-low-first"


@pytest.mark.parametrize(
    ("dialects", "found"),
    [
        ([], UNKNOWN),
        ([UNKNOWN], UNKNOWN),
        ([NONE], NONE),
        ([NONE, UNKNOWN], UNKNOWN),
        (["vllm", "vllm"], "vllm"),
        (["vllm", UNKNOWN, NONE], "vllm"),
        (["vllm", "sglang"], MIXED),
        (["sglang", "sglang-low-first"], MIXED),
    ],
)
def test_what_replicas_have_in_common(dialects: list[str], found: str) -> None:
    assert common(dialects) == found


def test_each_model_has_its_own_pool() -> None:
    replicas = {
        "a": replica("a", "vllm", models=("m", "both")),
        "b": replica("b", "sglang", models=("n", "both")),
    }
    dialects = Dialects(replicas)
    assert [dialects.of(model) for model in ("m", "n", "both")] == ["vllm", "sglang", MIXED]
    assert dialects.of(None) == MIXED
    assert dialects.of("unheard-of") == UNKNOWN
    replicas["c"] = replica("c", "trtllm")  # this replica may serve any model
    dialects.changed()
    assert [dialects.of(model) for model in ("m", "unheard-of")] == [MIXED, "trtllm"]


def test_an_engine_that_is_found_out_is_noticed() -> None:
    one = replica("a", models=("m",))
    dialects = Dialects({"a": one})
    assert dialects.of("m") == UNKNOWN
    for engine, dialect in (("vllm", "vllm"), ("sglang", "sglang"), (None, UNKNOWN)):
        one.engine = engine
        dialects.changed()
        assert dialects.of("m") == dialect
