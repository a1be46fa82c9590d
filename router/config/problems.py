"""Collects everything that is wrong with a configuration, each with the path of its setting.

A check that finds an error adds it here and continues, so that one run reports all errors. A field
that is known to be invalid is "spoiled". Later checks skip a spoiled field, because they would only
repeat or distort the first error.
"""

from __future__ import annotations

from collections.abc import Sequence

from router.core.errors import ConfigError


class Problems:
    """Collects `path: what is wrong` lines."""

    __slots__ = ("_paths", "lines")

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._paths: set[str] = set()

    def add(self, path: str, text: str) -> None:
        """Add a problem at `path`; an empty path means the whole configuration."""
        self._paths.add(path)
        self.lines.append(f"{path}: {text}" if path else text)

    def is_spoiled(self, *paths: str) -> bool:
        """Whether one of the paths, or something that contains it, has a problem already."""
        return any(not self._paths.isdisjoint(_with_ancestors(path)) for path in paths)

    @property
    def is_unreadable(self) -> bool:
        """Whether something is wrong with the document itself, so that nothing in it counts."""
        return "" in self._paths

    def raise_if_any(self) -> None:
        if self.lines:
            raise ConfigError(self.lines)


def _with_ancestors(path: str) -> list[str]:
    cuts = [index for index, char in enumerate(path) if char in ".["]
    return [path, *(path[:cut] for cut in cuts)]


def join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def said(problems: Sequence[str]) -> str:
    """All problems of one configuration, as a command prints them; no line break at the end."""
    count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
    return "\n  ".join([f"the configuration has {count}:", *problems])
