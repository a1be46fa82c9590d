"""The exceptions that reading JSON raises, as one tuple for every `except`, so that none is
forgotten."""

from __future__ import annotations

from typing import Final

import msgspec

# Bytes that are no JSON or not of the type asked for; text that is not UTF-8; nested too deeply.
NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
