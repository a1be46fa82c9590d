"""Checks that the files and the header fields which the configuration names can be used.

Must never: keep what a file contains.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from router.config.problems import Problems
from router.config.tls import FileProblem

# A valid name of a header field (RFC 9110), except that the underscore is not allowed.
FIELD_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^`|~-]{1,64}\Z")


def try_files(section: str, action: Callable[[], object], problems: Problems) -> None:
    """Calls `action`, which reads files, and adds its FileProblem as a problem of `section`."""
    try:
        action()
    except FileProblem as err:
        problems.add(f"{section}.{err.field}", str(err))
