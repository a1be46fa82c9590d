"""Collects all errors in a configuration, each with the path of its setting.

A check that finds an error adds it to `Problems` and continues, so that one run reports all errors.
No check raises an exception or changes the configuration.
A setting with an error is "spoiled". Later checks skip a spoiled setting, because they would repeat
the first error or report a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from router.core.errors import ConfigError

T = TypeVar("T")

# The maximum numbers of errors and of hints if `is_short`. Nested sections add a few.
_SHORT: Final = 100
_HINTS: Final = 8


class Problems:
    """A list of errors, each as a line `path: message`.

    `reads_files`: whether the files and environment variables that the configuration names are
    read, and the optional packages that it needs are looked for. They may be missing on the machine
    that checks a configuration for another one. `is_short`: the event loop waits for the result, so
    only the first errors of a list or of the unknown keys are found.
    """

    __slots__ = ("_is_short", "_paths", "lines", "reads_files")

    def __init__(self, *, reads_files: bool = True, is_short: bool = False) -> None:
        self.reads_files = reads_files
        self._is_short = is_short
        self.lines: list[str] = []
        self._paths: set[str] = set()

    def add(self, path: str, text: str) -> None:
        """Adds an error in the setting at `path`; an empty path means the whole configuration."""
        self._paths.add(path)
        self.lines.append(f"{path}: {text}" if path else text)

    def require(self, is_valid: object, path: str, text: str) -> None:
        """Adds an error in a setting, unless `is_valid` is true or it has an error already."""
        if not is_valid and not self.is_spoiled(path):
            self.add(path, text)

    def each(self, path: str, items: Iterable[T]) -> Iterator[tuple[str, T]]:
        """Yields the path and the value of each item of a list that has no error yet."""
        for index, item in enumerate(items):
            here = f"{path}[{index}]"
            if not self.is_spoiled(here):
                yield here, item

    def parsed(self, path: str, parse: Callable[[str], T], text: str) -> T | None:
        """Return `parse(text)`, where `text` is the setting at `path`.

        Returns `None` if `parse` raises ValueError, which is added as an error, or if the setting
        has an error already.
        """
        if self.is_spoiled(path):
            return None
        try:
            return parse(text)
        except ValueError as err:
            self.add(path, str(err))
            return None

    def is_spoiled(self, *paths: str) -> bool:
        """Return whether one of the paths, or a section that contains it, has an error already."""
        return any(not self._paths.isdisjoint(_with_ancestors(path)) for path in paths)

    @property
    def is_full(self) -> bool:
        """Whether the other items of a list and other unknown keys need not be examined."""
        return self._is_short and len(self.lines) >= _SHORT

    @property
    def has_hints(self) -> bool:
        """Whether an unknown key gets a hint. To find one takes some milliseconds."""
        return not self._is_short or len(self.lines) < _HINTS

    @property
    def is_unreadable(self) -> bool:
        """Whether the whole document has an error, so that none of its settings can be used."""
        return "" in self._paths

    def raise_if_any(self) -> None:
        if self.lines:
            raise ConfigError(self.lines)


def _with_ancestors(path: str) -> list[str]:
    cuts = [index for index, char in enumerate(path) if char in ".["]
    return [path, *(path[:cut] for cut in cuts)]


def join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def said(problems: Sequence[str], what: str = "the configuration") -> str:
    """Return the text with which a command prints all errors, without a line break at the end.

    `what`: what has the errors, for example the path of a file.
    """
    count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
    return "\n  ".join([f"{what} has {count}:", *problems])
