"""Reads `/v1/models`: models, adapters, their owners, and the context length.

The answer may come from any server that calls itself OpenAI-compatible, so unexpected parts are
ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from router.core.unreadable import NOT_JSON
from router.fleet.engines.common.base import decoded

CONTEXT = "max_model_len"  # The name of the context length in the answers of vLLM and SGLang.

# Maximum number of entries that are read of a model list. A list of this length costs the event
# loop about 35 ms, once for each change.
MODELS_MOST = 16_384
# Maximum number of commas in a model list. Commas separate its values, and each value needs memory
# and time. vLLM 0.32 writes 19 commas per entry, in 449 bytes.
COMMAS_MOST: Final = 12 * MODELS_MOST

Entries = dict[str, dict[str, Any]]  # model name -> its entry


class _List(msgspec.Struct):
    data: list[msgspec.Raw]


_read_list = msgspec.json.Decoder(_List).decode


def read_models(body: bytes) -> Entries:
    """Return the entries by model name; empty if the answer is not a list of models.

    Entries beyond MODELS_MOST are ignored. The result is empty if the answer has more than
    COMMAS_MOST commas.
    """
    if body.count(b",") > COMMAS_MOST:
        return {}
    try:
        data = _read_list(body).data
    except NOT_JSON:
        return {}
    entries: Entries = {}
    for raw in data[:MODELS_MOST]:
        entry = decoded(bytes(raw))
        if not isinstance(entry, dict):
            return {}
        name = entry.get("id")
        if isinstance(name, str):
            entries[name] = entry
    return entries


def owners(entries: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    """Return the values of `owned_by`; most engines write their own name in this field."""
    found = (entry.get("owned_by") for entry in entries.values())
    return frozenset(owner for owner in found if isinstance(owner, str))


def adapters(entries: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    """Return the names of the entries that are adapters of another model."""
    return frozenset(name for name, e in entries.items() if isinstance(e.get("parent"), str))


def context_tokens(entry: Mapping[str, Any]) -> int | None:
    """Return the maximum length of prompt and answer together, in tokens; `None`: not reported."""
    value = entry.get(CONTEXT)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**53:
        return value
    return None
