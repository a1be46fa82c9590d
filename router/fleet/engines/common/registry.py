"""Finds all engines by listing the files of the package, and merges their tables.

The merged tables are created once, when this module is imported.

Must never: name an engine.
"""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

import router.fleet.engines as _package
from router.fleet.engines.common.descriptor import Engine, NativePath
from router.fleet.engines.common.priority import SILENT, Dialect
from router.fleet.engines.common.publishers import Publisher


def _found() -> dict[str, Engine]:
    """Return the engine of each file, in the order of their detection requests."""
    found: list[Engine] = []
    for module in iter_modules(_package.__path__):
        if not module.ispkg:
            engine = import_module(f"{_package.__name__}.{module.name}").ENGINE
            assert engine.name == module.name, f"{module.name}: must be the name of its engine"
            found.append(engine)
    return {engine.name: engine for engine in sorted(found, key=lambda e: (e.order, e.name))}


ENGINES: Final = _found()
_OTHER: Final = next(engine for engine in ENGINES.values() if not engine.is_recognised)
# The engine of a replica until its engine is detected; it is handled as an unknown engine.
UNDETECTED: Final = Engine("", sources=_OTHER.sources, health=_OTHER.health, is_recognised=False)


def engine_of(name: str | None) -> Engine:
    """Return the engine with this name; UNDETECTED for None and for unknown names."""
    return UNDETECTED if name is None else ENGINES.get(name, UNDETECTED)


def _dialects() -> dict[str, Dialect]:
    found: dict[str, Dialect] = {}
    for engine in ENGINES.values():
        for dialect in (engine.dialect, engine.low_first):
            if dialect is not None and dialect is not SILENT:
                found[dialect.name] = dialect
    return found


DIALECTS: Final = _dialects()  # The dialects of all engines with priorities, by name.


def _control() -> frozenset[bytes]:
    found: set[bytes] = set()
    for engine in ENGINES.values():
        found |= engine.control
    return frozenset(found)


def _control_below() -> tuple[bytes, ...]:
    return tuple({path: None for engine in ENGINES.values() for path in engine.control_below})


# Paths that stop an engine, change it or show its state; they are blocked for clients.
CONTROL: Final = _control()
# Prefixes of paths that stop an engine, change it or show its state. All paths with these prefixes
# are blocked for clients.
CONTROL_BELOW: Final = _control_below()


def _private_headers() -> frozenset[bytes]:
    found: set[bytes] = set()
    for engine in ENGINES.values():
        found |= engine.private_headers
    return frozenset(found)


# Request headers that an engine obeys and that clients must not send.
PRIVATE_HEADERS: Final = _private_headers()


def _private_members() -> frozenset[str]:
    found: set[str] = set()
    for engine in ENGINES.values():
        found |= engine.private_members
    return frozenset(found)


# Members of a body by which an engine chooses where it reads or writes.
PRIVATE_MEMBERS: Final = _private_members()


def _member_nests() -> frozenset[str]:
    found: set[str] = set()
    for engine in ENGINES.values():
        found |= engine.member_nests
    return frozenset(found)


# Objects in a body in which an engine reads private members, too.
MEMBER_NESTS: Final = _member_nests()


def _native() -> list[NativePath]:
    return [path for engine in ENGINES.values() for path in engine.native]


# Inference paths of the engines' own APIs; several engines may have the same path.
NATIVE_PATHS: Final = _native()


def _adapter_paths() -> frozenset[bytes]:
    found: set[bytes] = set()
    for engine in ENGINES.values():
        if engine.adapters is not None:
            found |= engine.adapters.by_path.keys()
    return frozenset(found)


# Paths on which at least one engine does not read `model`.
ADAPTER_PATHS: Final = _adapter_paths()


def _counts_natively() -> frozenset[bytes]:
    found: set[bytes] = set()
    for engine in ENGINES.values():
        found |= engine.counts_natively
    return frozenset(found)


# Paths whose answers have token counts in a format of their own.
COUNTS_NATIVELY: Final = _counts_natively()


def _abort_paths() -> frozenset[bytes]:
    found: set[bytes] = set()
    for engine in ENGINES.values():
        if engine.abort is not None:
            found |= engine.abort.paths
    return frozenset(found)


# Paths whose requests can have an ID, for an abort, at one of the engines.
ABORT_PATHS: Final = _abort_paths()


def _publishers() -> tuple[Publisher, ...]:
    found = [engine.publisher for engine in ENGINES.values() if engine.publisher is not None]
    return tuple(found)


_PUBLISHERS: Final = _publishers()


def publishers_of(engine: Engine) -> tuple[Publisher, ...]:
    """Return the ways in which an engine may report its publishers of KV events.

    If the engine was not detected, the result has the ways of all engines.
    """
    if not engine.is_recognised:
        return _PUBLISHERS
    return () if engine.publisher is None else (engine.publisher,)


def _refusals() -> re.Pattern[bytes]:
    words = {words: None for dialect in DIALECTS.values() for words in dialect.refusals}
    return re.compile(b"(?is)" + b"|".join(words))


# Patterns in an answer which show that the engine does not support priorities.
REFUSALS: Final = _refusals()
