"""Reads a file that the configuration names: the configuration itself, keys, tokens.

A reload reads these files on the event loop. So a named pipe without a writer must not block it: a
usual `open` waits until a program opens the other end. A pipe with a writer, as in
`--config <(command)`, is read until its end.

Must never: wait for the other end of a pipe.
"""

from __future__ import annotations

import os


def read_file(path: str | os.PathLike[str], bytes_max: int) -> bytes:
    """Return at most `bytes_max` bytes of a file. Raises OSError; ValueError if the path has a NUL
    byte."""
    with open(path, "rb", opener=without_waiting) as file:
        os.set_blocking(file.fileno(), True)
        return file.read(bytes_max)


def without_waiting(path: str, flags: int) -> int:
    """The `opener` of `open` for a file that may be a pipe without a writer."""
    return os.open(path, flags | os.O_NONBLOCK)
