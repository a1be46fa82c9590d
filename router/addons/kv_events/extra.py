"""Imports the optional packages of `prefix.exact`, only if that setting is enabled."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from router.core.errors import ConfigError

EXTRA = ".[kv-events]"  # the argument of pip that installs the optional packages


def load(module: str, package: str, wanted_by: str) -> Any:
    """Import `module`; raises ConfigError naming the setting `wanted_by` that needs `package`."""
    try:
        return import_module(module)
    except ImportError as err:
        raise ConfigError(
            [f"{wanted_by}: needs the package {package} ({err}); pip install '{EXTRA}'"]
        ) from None
