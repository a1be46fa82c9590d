"""Reads the lines of API keys from the keys file, and from a folder with one file for each key.

The folder has the form in which Kubernetes mounts a secret: each file has the lines of one or more
keys, and `..data` is a symbolic link to the folder with the present files. Names that begin with a
dot are ignored. Kubernetes replaces all files at once, by a new target of `..data`. So the files
are read from the link's target, and read again if the target is removed meanwhile. The lines of the
file and of the folder are checked as one keys file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from router.config.keys import KeyLine, KeysProblem, parse_sources
from router.config.model import Keys
from router.config.read_file import read_file

_BYTES: Final = 64 * 1024 * 1024
_FILES: Final = 100_000
_TRIES: Final = 3
DATA: Final = "..data"


def read_keys(rules: Keys) -> tuple[KeyLine, ...]:
    """Return the lines of all keys that the section `keys` names. Raises KeysProblem."""
    sources: list[tuple[str, bytes]] = []
    if rules.file is not None:
        raw = _read(rules.file, "file")
        if not raw.strip():
            # A full disk or a program that is writing the file leaves an empty file. A reload must
            # not take it for the removal of every key, and with them of every limit.
            raise KeysProblem("is empty; a file without keys must have a comment", "file")
        sources.append(("", raw))
    if rules.folder is not None:
        sources += _read_folder(rules.folder)
    try:
        return parse_sources(sources)
    except KeysProblem as err:
        # Lines of the folder are named with their file.
        raise KeysProblem(str(err), "file" if str(err).startswith("line ") else "folder") from None


def _read_folder(path: str) -> list[tuple[str, bytes]]:
    for _ in range(_TRIES):
        before = _target(path)
        try:
            found = _files_of(before)
        except KeysProblem:
            if _target(path) == before:
                raise
            continue
        return found
    raise KeysProblem(f"{path!r} changes all the time", "folder")


def _target(path: str) -> Path:
    """Return the folder that has the present files."""
    data = Path(path, DATA)
    return Path(os.path.realpath(data)) if data.is_dir() else Path(path)


def _files_of(folder: Path) -> list[tuple[str, bytes]]:
    try:
        names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except (OSError, ValueError) as err:  # ValueError if the path has a NUL byte
        raise KeysProblem(f"{str(folder)!r} cannot be read: {_why(err)}", "folder") from None
    if len(names) > _FILES:
        raise KeysProblem(f"has more than {_FILES} files", "folder")
    found, size = [], 0
    for name in names:
        raw = _read(str(folder / name), "folder", f"{name}: ")
        size += len(raw)
        if size > _BYTES:
            raise KeysProblem(f"has more than {_BYTES} bytes", "folder")
        found.append((f"{name}: ", raw))
    return found


def _read(path: str, field: str, prefix: str = "") -> bytes:
    try:
        raw = read_file(path, _BYTES + 1)
    except (OSError, ValueError) as err:  # ValueError if the path has a NUL byte
        raise KeysProblem(f"{path!r} cannot be read: {_why(err)}", field) from None
    if len(raw) > _BYTES:
        raise KeysProblem(f"{prefix}is larger than {_BYTES} bytes", field)
    return raw


def _why(err: OSError | ValueError) -> str:
    return err.strerror if isinstance(err, OSError) and err.strerror else str(err)
