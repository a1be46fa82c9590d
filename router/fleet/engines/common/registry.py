"""Finds all engines by name, and merges their tables. The files of the package are the list.

The merged tables are created once, when this module is imported. Must never: name an engine.
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
    """The engine of each file, in the order of their detection requests."""
    found: list[Engine] = []
    for module in iter_modules(_package.__path__):
        if not module.ispkg:
            engine = import_module(f"{_package.__name__}.{module.name}").ENGINE
            assert engine.name == module.name, f"{module.name}: an engine has its file's name"
            found.append(engine)
    return {engine.name: engine for engine in sorted(found, key=lambda e: (e.order, e.name))}


ENGINES: Final = _found()
_OTHER: Final = next(engine for engine in ENGINES.values() if not engine.is_recognised)
# Of a replica whose engine was not detected yet: it gets the requests of an unknown engine.
UNDETECTED: Final = Engine("", sources=_OTHER.sources, health=_OTHER.health, is_recognised=False)


def engine_of(name: str | None) -> Engine:
    """The engine of a name; UNDETECTED for None and for unknown names."""
    return UNDETECTED if name is None else ENGINES.get(name, UNDETECTED)


def _dialects() -> dict[str, Dialect]:
    found: dict[str, Dialect] = {}
    for engine in ENGINES.values():
        for dialect in (engine.dialect, engine.low_first):
            if dialect is not None and dialect is not SILENT:
                found[dialect.name] = dialect
    return found


DIALECTS: Final = _dialects()  # of all engines that have priorities, by name


def _control() -> frozenset[bytes]:
    found: set[bytes] = set()
    for engine in ENGINES.values():
        found |= engine.control
    return frozenset(found)


def _control_below() -> tuple[bytes, ...]:
    return tuple({path: None for engine in ENGINES.values() for path in engine.control_below})


# Paths that stop, change or show an engine ...
CONTROL: Final = _control()
# ... and everything below these.
CONTROL_BELOW: Final = _control_below()


def _private_headers() -> frozenset[bytes]:
    found: set[bytes] = set()
    for engine in ENGINES.values():
        found |= engine.private_headers
    return frozenset(found)


# Request headers that an engine obeys and that clients must not send.
PRIVATE_HEADERS: Final = _private_headers()


def _native() -> list[NativePath]:
    return [path for engine in ENGINES.values() for path in engine.native]


NATIVE_PATHS: Final = _native()  # inference of engines' own APIs; several may have the same path


def _adapter_paths() -> frozenset[bytes]:
    found: set[bytes] = set()
    for engine in ENGINES.values():
        if engine.adapters is not None:
            found |= engine.adapters.by_path.keys()
    return frozenset(found)


# Paths on which some engine does not read `model`.
ADAPTER_PATHS: Final = _adapter_paths()


def _counts_natively() -> frozenset[bytes]:
    found: set[bytes] = set()
    for engine in ENGINES.values():
        found |= engine.counts_natively
    return frozenset(found)


# Paths whose answers have counts in their own format.
COUNTS_NATIVELY: Final = _counts_natively()


def _abort_paths() -> frozenset[bytes]:
    found: set[bytes] = set()
    for engine in ENGINES.values():
        if engine.abort is not None:
            found |= engine.abort.paths
    return frozenset(found)


ABORT_PATHS: Final = _abort_paths()  # paths whose requests have an ID at some engine


def _publishers() -> tuple[Publisher, ...]:
    found = [engine.publisher for engine in ENGINES.values() if engine.publisher is not None]
    return tuple(found)


_PUBLISHERS: Final = _publishers()


def publishers_of(engine: Engine) -> tuple[Publisher, ...]:
    """The ways in which it may report KV event publishers: all ways if it was not detected."""
    if not engine.is_recognised:
        return _PUBLISHERS
    return () if engine.publisher is None else (engine.publisher,)


def _refusals() -> re.Pattern[bytes]:
    words = {words: None for dialect in DIALECTS.values() for words in dialect.refusals}
    return re.compile(b"(?is)" + b"|".join(words))


REFUSALS: Final = _refusals()  # patterns in an answer: the engine does not support priorities
