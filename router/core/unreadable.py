"""What reading JSON raises: one tuple for every `except`, because each of the three is forgotten
somewhere else it stands alone."""

from __future__ import annotations

from typing import Final

import msgspec

# Bytes that are no JSON or not of the type asked for; text that is not UTF-8; nested too deeply.
NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
