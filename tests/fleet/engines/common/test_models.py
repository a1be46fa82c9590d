"""A list of models: names, adapters, owners, lengths; an invalid list gives nothing."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from router.fleet.engines.common.models import (
    COMMAS_MOST,
    MODELS_MOST,
    adapters,
    context_tokens,
    owners,
    read_models,
)

LIST = {
    "data": [
        {"id": "m", "owned_by": "vllm", "parent": None, "max_model_len": 4096},
        {"id": "sql", "owned_by": "vllm", "parent": "m"},
    ]
}


def test_what_a_list_says() -> None:
    entries = read_models(json.dumps(LIST).encode())
    assert set(entries) == {"m", "sql"}
    assert adapters(entries) == {"sql"}
    assert owners(entries) == {"vllm"}
    assert context_tokens(entries["m"]) == 4096
    assert context_tokens(entries["sql"]) is None


@pytest.mark.parametrize("length", [None, "4096", 0, -1, True, 4096.5, [], 2**53])
def test_lengths_that_are_none(length: Any) -> None:
    assert context_tokens({"max_model_len": length}) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "owned_by", "parent", "max_model_len"]), inner)
    ),
)


@given(JSON)
def test_any_list(data: Any) -> None:
    entries = read_models(json.dumps({"data": data}).encode())
    assert all(isinstance(name, str) for name in entries)
    assert adapters(entries) <= entries.keys()
    assert all(isinstance(owner, str) for owner in owners(entries))
    for entry in entries.values():
        context_tokens(entry)


def test_of_a_long_list_the_first_entries_are_read() -> None:
    data = [{"id": f"m{n}"} for n in range(MODELS_MOST + 3)]
    for count in (MODELS_MOST - 1, MODELS_MOST, MODELS_MOST + 3):
        entries = read_models(json.dumps({"data": data[:count]}).encode())
        assert list(entries) == [entry["id"] for entry in data[:count]][:MODELS_MOST]


def test_a_list_of_too_many_values_is_not_read() -> None:
    """Otherwise an answer of 4 MiB could have two million values, at the end or in an entry."""
    for tail in (b",{}" * COMMAS_MOST, b',{"id":"n","x":[1%b]}' % (b",1" * (COMMAS_MOST - 2))):
        assert set(read_models(b'{"data":[{"id":"m"}%b]}' % tail)) >= {"m"}
        assert read_models(b'{"data":[{"id":"m"}%b,{}]}' % tail) == {}
