"""Finds policies by name, built-in and third-party ones, and checks their options.

Each kind of policy (routing, queueing, hedging) has one registry. A policy class is a dataclass
whose fields are its options. Values are checked against the fields' types before the class gets
them. Third parties register policies through an entry-point group; the entry point's name is the
policy's name. A policy that cannot be imported causes an error only if it is asked for by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar, get_type_hints

import msgspec

T = TypeVar("T")
Class = TypeVar("Class", bound=type)


class PolicyConfigError(ValueError):
    """A policy cannot be made. The message gives the reason; `option` is the invalid option."""

    def __init__(self, message: str, option: str | None = None) -> None:
        super().__init__(message)
        self.option = option


class Registry(Generic[T]):
    """All policies of one kind."""

    def __init__(
        self, kind: str, package: str, group: str, others: Mapping[str, str] | None = None
    ) -> None:
        """`kind`: the kind's name in messages; `package`: importing it registers built-in policies;
        `group`: the entry-point group of third parties; `others`: the names that other routers use,
        with the names of the most similar policies.
        """
        self.kind = kind
        self.group = group
        self.classes: dict[str, type[T]] = {}
        self._package = package
        self._others = others or {}

    def register(self, name: str) -> Callable[[Class], Class]:
        """A decorator: register a class under `name`. Raises ValueError if the name is taken."""

        def register(cls: Class) -> Class:
            if name in self.classes:
                raise ValueError(f"two {self.kind} policies are called {name!r}")
            self.classes[name] = cls
            return cls

        return register

    def names(self) -> list[str]:
        """The names that `make` accepts, sorted. Third-party policies are not imported."""
        import_module(self._package)
        return sorted({*self.classes, *self._entry_points()})

    def make(self, name: str, options: Mapping[str, Any] | None = None) -> T:
        """Build a policy from its name and options (a mapping as in the configuration).

        Raises PolicyConfigError for an unknown name, an unknown option or a bad value.
        """
        cls = self._find(name)
        kinds = option_types(cls)
        values: dict[str, Any] = {}
        for option, value in (options or {}).items():
            if option not in kinds:
                known = ", ".join(sorted(kinds)) or "none"
                raise PolicyConfigError(f"unknown option of {name} (known: {known})", option)
            try:
                values[option] = msgspec.convert(value, kinds[option])
            except msgspec.ValidationError as err:
                raise PolicyConfigError(f"{name}: {err}", option) from None
        try:
            return cls(**values)
        except PolicyConfigError:
            raise
        except Exception as err:  # third-party code may raise anything; a reload must not fail
            raise PolicyConfigError(f"{name}: {type(err).__name__}: {err}") from err

    def _find(self, name: str) -> type[T]:
        import_module(self._package)
        if name not in self.classes and (point := self._entry_points().get(name)) is not None:
            try:
                point.load()
            except (Exception, SystemExit) as err:  # a third-party module may raise anything
                self.classes.pop(name, None)
                raise PolicyConfigError(
                    f"policy {name!r} cannot be imported from {point.value}: "
                    f"{type(err).__name__}: {err}"
                ) from err
            if name not in self.classes:
                raise PolicyConfigError(f"{point.value} registers no policy called {name!r}")
        if name not in self.classes:
            from difflib import get_close_matches

            known = self.names()
            near = self._others.get(name) or next(iter(get_close_matches(name, known, n=1)), "")
            hint = f"; did you mean {near}?" if near else ""
            raise PolicyConfigError(f"unknown policy {name!r}{hint} (known: {', '.join(known)})")
        return self.classes[name]

    def _entry_points(self) -> dict[str, Any]:
        # This import is not at the top of the file, because it takes 15 ms and is almost never
        # needed.
        from importlib.metadata import entry_points

        return {point.name: point for point in entry_points(group=self.group)}


def option_types(cls: type) -> dict[str, Any]:
    """The options of a policy class and their types; empty if it is not a dataclass."""
    if not dataclasses.is_dataclass(cls):
        return {}
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}
