"""The model that is used for a name that no replica lists."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.fleet.helpers import Table

Config = dict[str, Any]
VLLM: Config = {"engine": "vllm"}
SGLANG: Config = {"engine": "sglang"}
LLAMA: Config = {"engine": "llamacpp"}


@pytest.mark.parametrize(
    ("replicas", "name", "stands"),
    [
        # A single engine checks model names itself, unless it is known to refuse unknown names.
        ([(("a",), LLAMA)], "x", "a"),
        ([(("a",), {"engine": "tgi"}), (("a",), {"engine": "tgi"})], "x", "a"),
        ([(("b", "a"), {})], "x", "a"),
        ([(("a",), VLLM)], "x", None),
        ([(("a",), LLAMA), (("a",), VLLM)], "x", None),
        ([(("a",), VLLM), (("a",), VLLM | {"unknown_models": "forward"})], "x", "*"),
        ([(("a",), LLAMA | {"unknown_models": "reject"})], "x", None),
        # Beside another model, an unknown name belongs to neither.
        ([(("a",), LLAMA), (("b",), LLAMA)], "x", None),
        ([(("a",), LLAMA), (("*",), {})], "x", "*"),
        ([(("a",), VLLM), (("b", "*"), VLLM)], "x", "*"),
        # Adapters are routed to their model.
        ([(("a",), SGLANG), (("b",), VLLM)], "a:fr", "a"),
        ([(("org/a:7b",), SGLANG), (("b",), VLLM)], "org/a:7b:fr", "org/a:7b"),
        ([(("a",), SGLANG), (("b",), VLLM)], "b:fr", None),
        ([(("a",), SGLANG), (("b",), VLLM)], "c:fr", None),
        ([(("a",), SGLANG), (("a", "b"), VLLM)], "a:fr", None),
        ([(("a",), SGLANG | {"unknown_models": "reject"}), (("b",), VLLM)], "a:fr", None),
        ([(("a",), VLLM)], "a", "a"),
        ([(("a",), LLAMA)], "", "a"),
        ([(None, {})], "x", "x"),  # no replica lists a model: every name is accepted
    ],
)
def test_who_stands_for_it(
    replicas: list[tuple[tuple[str, ...] | None, Config]], name: str, stands: str | None
) -> None:
    table = Table()
    for number, (models, config) in enumerate(replicas):
        table.add(f"r{number}", models, **config)
    fleet = table.fleet
    routed = fleet.models.routed(name)
    assert routed == (name if stands is None else stands)
    assert bool(fleet.serving.of(routed, None)) == (stands is not None)
    assert fleet.models.routed(None) is None


def test_it_follows_what_is_learned(table: Table) -> None:
    replica = table.add("r", None)
    fleet = table.fleet
    fleet.probes.learned(replica, {"a": {"id": "a"}})
    assert fleet.models.routed("x") == "a"
    replica.engine = "vllm"
    fleet.polls.unobserved(replica, "status", 0.0)
    assert fleet.models.routed("x") == "x"
    assert not fleet.serving.of("x", None)
    replica.adopt(replace(replica.config, unknown_models="forward"), table.rules, None)
    fleet.rebuild()
    assert fleet.models.routed("x") == "*"
    assert fleet.listing.of(None).entry("a") == b'{"id":"a"}'
    assert len(fleet.listing.of(None)) == 1


def test_any_and_what_it_lists(table: Table) -> None:
    """`*` also forwards the model list of the replica: listed names are routed by themselves."""
    replica = table.add("r", ("*",))
    table.add("s", ("b",))
    fleet = table.fleet
    assert fleet.models.routed("a") == "*"
    fleet.probes.learned(replica, {"a": {"id": "a"}})
    assert (fleet.models.routed("a"), fleet.models.routed("b"), fleet.models.routed("c")) == (
        "a",
        "b",
        "*",
    )
    assert table.ids("a") == table.ids("*") == ["r"]
    assert fleet.listing.names_text(None, None) == "; served here: `a`, `b`"
    assert fleet.listing.names_text({"b", "z"}, None) == "; served here: `b`"
    assert fleet.listing.names_text(set(), None) == ""
