"""The exceptions that decoding JSON can raise, as one tuple for `except` clauses."""

from __future__ import annotations

from typing import Final

import msgspec

# The exceptions are for: invalid JSON or a value of a wrong type; text that is not UTF-8; nesting
# that is too deep.
NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
