"""Reads a small file that another program writes. Call it in a thread."""

from __future__ import annotations


class TooLarge(ValueError):
    """The file is larger than allowed."""


def read_small(path: str, bytes_max: int) -> bytes | None:
    """Return the content of a file; `None`: no file. Raises OSError and TooLarge."""
    try:
        with open(path, "rb") as file:
            raw = file.read(bytes_max + 1)
    except FileNotFoundError:
        return None
    if len(raw) > bytes_max:
        raise TooLarge(f"is larger than {bytes_max} bytes")
    return raw
