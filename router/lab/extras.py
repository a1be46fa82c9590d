"""The error for a missing Python package that only an optional extra installs."""

from __future__ import annotations


class MissingExtra(RuntimeError):
    """An optional package is not installed. The message names the command that installs it."""
