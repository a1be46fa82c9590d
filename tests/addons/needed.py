"""Leaves out tests that need an addon, if its folder was removed."""

import pytest

from router.core.addons import is_installed


def needs(*addons: str) -> pytest.MarkDecorator:
    """Marks a test that needs addons beside other parts of the router."""
    missing = [addon for addon in addons if not is_installed(addon)]
    return pytest.mark.skipif(bool(missing), reason=f"there is no addon {missing}")
