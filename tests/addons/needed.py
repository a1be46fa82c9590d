"""Leaves out tests that need an addon, if its folder was removed."""

from __future__ import annotations

import pytest

from router.core.addons import is_installed


def needs(addon: str) -> pytest.MarkDecorator:
    """Marks a test that needs an addon beside other parts of the router."""
    return pytest.mark.skipif(not is_installed(addon), reason=f"there is no addon {addon}")
