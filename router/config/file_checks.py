"""Checks that the files and the header fields which the configuration names can be used.

Must never: keep what a file contains.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from router.config.model import Admin, Upstream
from router.config.problems import Problems
from router.config.tls import FileProblem, token_of

# A valid name of a header field (RFC 9110), except that the underscore is not allowed.
FIELD_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^`|~-]{1,64}\Z")


def try_files(section: str, action: Callable[[], object], problems: Problems) -> None:
    """Calls `action`, which reads files, and adds its FileProblem as a problem of `section`."""
    try:
        action()
    except FileProblem as err:
        problems.add(f"{section}.{err.field}", str(err))


def check_token(path: str, section: Upstream | Admin, problems: Problems) -> None:
    """Checks the token of a section. `path`: the name of the section."""
    if problems.is_spoiled(path):
        return
    if section.token is not None and section.token_file is not None:
        problems.add(f"{path}.token_file", "give either token or token_file, not both")
    else:
        try_files(path, lambda: token_of(section), problems)
