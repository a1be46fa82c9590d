"""The answer to /v1/models, encoded once for each change of the list.

A list may have thousands of entries, so encoding it takes milliseconds, and a client may request it
often. Clients of Anthropic's API read another format than clients of OpenAI's.

A `ModelList` must never be changed. The fleet makes a new object when its list of models changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

_KEPT: Final = 16  # Maximum number of cached partial model lists.
_LATEST: Final = 2**36  # An entry with a later time of creation, in seconds, counts as unknown.
_encode: Final = msgspec.json.Encoder().encode


class ModelList:
    """The models that the fleet serves, as JSON."""

    __slots__ = ("_entries", "_is_anthropic", "_of_anthropic", "_parts", "_source", "whole")

    def __init__(self, entries: dict[str, dict[str, Any]], *, is_anthropic: bool = False) -> None:
        self._source = entries
        self._is_anthropic = is_anthropic
        shape = _anthropic if is_anthropic else _unchanged
        self._entries = {name: _encode(shape(name, entry)) for name, entry in entries.items()}
        # Cached partial lists. The key is the set of model names that an API key may see.
        self._parts: dict[frozenset[str], bytes] = {}
        self._of_anthropic: ModelList | None = None
        self.whole = self._listed(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def for_anthropic(self) -> ModelList:
        """Return the same list in the format of Anthropic's API."""
        if self._of_anthropic is None:
            self._of_anthropic = ModelList(self._source, is_anthropic=True)
        return self._of_anthropic

    def part(self, names: frozenset[str]) -> bytes:
        """Return the JSON of the model list with only the models in `names`."""
        found = self._parts.get(names)
        if found is None:
            found = self._listed({n: entry for n, entry in self._entries.items() if n in names})
            if len(self._parts) == _KEPT:
                self._parts.clear()
            self._parts[names] = found
        return found

    def entry(self, name: str) -> bytes | None:
        """Return the JSON entry of one model; `None` if the model is not listed."""
        return self._entries.get(name)

    def _listed(self, entries: dict[str, bytes]) -> bytes:
        data = b",".join(entries.values())
        if not self._is_anthropic:
            return b'{"object":"list","data":[%b]}' % data
        first, last = next(iter(entries), None), next(reversed(entries), None)
        ends = _encode({"has_more": False, "first_id": first, "last_id": last})
        return b'{"data":[%b],%b' % (data, ends[1:])


def _unchanged(name: str, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    return entry


def _anthropic(name: str, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entry of a model for https://platform.claude.com/docs/en/api/models/list."""
    created = entry.get("created")
    if not isinstance(created, int) or not 0 <= created < _LATEST:
        created = 0  # 1970: unknown
    made_at = datetime.fromtimestamp(created, UTC)
    created_at = made_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "model", "id": name, "display_name": name, "created_at": created_at}
