"""The answer to /v1/models, encoded once for each change of the list.

A list may have thousands of entries, so encoding it takes milliseconds, and a client may request it
often.

A `ModelList` must never be changed. The fleet makes a new object when its list of models changes.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

_KEPT: Final = 16  # Maximum number of cached partial model lists.
_encode: Final = msgspec.json.Encoder().encode


class ModelList:
    """The models that the fleet serves, as JSON."""

    __slots__ = ("_entries", "_parts", "whole")

    def __init__(self, entries: dict[str, dict[str, Any]]) -> None:
        self._entries = {name: _encode(entry) for name, entry in entries.items()}
        # Cached partial lists. The key is the set of model names that an API key may see.
        self._parts: dict[frozenset[str], bytes] = {}
        self.whole = _listed(list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def part(self, names: frozenset[str]) -> bytes:
        """Return the JSON of the model list with only the models in `names`."""
        found = self._parts.get(names)
        if found is None:
            found = _listed([entry for name, entry in self._entries.items() if name in names])
            if len(self._parts) == _KEPT:
                self._parts.clear()
            self._parts[names] = found
        return found

    def entry(self, name: str) -> bytes | None:
        """Return the JSON entry of one model; `None` if the model is not listed."""
        return self._entries.get(name)


def _listed(entries: list[bytes]) -> bytes:
    return b'{"object":"list","data":[%b]}' % b",".join(entries)
