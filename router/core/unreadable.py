"""The exceptions that decoding JSON can raise, as one tuple for `except` clauses."""

from __future__ import annotations

from typing import Final

import msgspec

# In this order: invalid JSON or a value of another type; text that is not UTF-8; too deep nesting.
NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
