"""Checks that the files and the header fields which the configuration names can be used.

Must never: keep what a file contains.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from router.config.model.setting_types import TokenSource
from router.config.problems import Problems
from router.config.tls import FileProblem, token_of

# A valid name of a header field (RFC 9110), except that the underscore is not allowed.
FIELD_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^`|~-]{1,64}\Z")


def try_files(section: str, action: Callable[[], object], problems: Problems) -> None:
    """Calls `action`, which reads files, and adds its FileProblem as a problem of `section`."""
    if not problems.reads_files:
        return
    try:
        action()
    except FileProblem as err:
        problems.add(f"{section}.{err.field}", str(err))


def check_token(
    path: str, section: TokenSource, problems: Problems, *, is_needed: bool = False
) -> None:
    """Checks the token of a section. `path`: the path of the section."""
    if problems.is_spoiled(path):
        return
    given = sum(s is not None for s in (section.token, section.token_file, section.token_env))
    if given > 1 or (is_needed and not given):
        rule = "needs" if is_needed else "may have only"
        problems.add(path, f"{rule} one of token, token_file and token_env")
    else:
        try_files(path, lambda: token_of(section), problems)
