"""The error for a package that only an optional extra of the installation has."""

from __future__ import annotations


class MissingExtra(RuntimeError):
    """An optional package is not installed. The message names the command that installs it."""
