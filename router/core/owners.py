"""The ID of the owner of a batch. The data plane makes it, and the batch server stores it."""

from __future__ import annotations

from typing import Final

# The ID of an owner with a known API key begins with this, followed by the name of the key.
KEYED: Final = "key:"
