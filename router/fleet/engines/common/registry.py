"""Finds all engines by listing the files of the package, and merges their tables.

The merged tables are created once, when this module is imported.

Must never: name an engine.
"""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final

import router.fleet.engines as _package
from router.fleet.engines.common.descriptor import Engine
from router.fleet.engines.common.priority import SILENT
from router.fleet.engines.common.publishers import Publisher


def _found() -> dict[str, Engine]:
    """Return the engine of each file, in the order of their detection requests."""
    found: list[Engine] = []
    for module in iter_modules(_package.__path__):
        if not module.ispkg:
            engine = import_module(f"{_package.__name__}.{module.name}").ENGINE
            assert engine.name == module.name, f"{module.name}: must be the name of its engine"
            found.append(engine)
    return {engine.name: engine for engine in sorted(found, key=lambda e: (e.marks.order, e.name))}


ENGINES: Final = _found()
_OTHER: Final = next(engine for engine in ENGINES.values() if not engine.is_recognised)
# The engine of a replica until its engine is detected; it is handled as an unknown engine.
UNDETECTED: Final = Engine("", sources=_OTHER.sources, health=_OTHER.health, is_recognised=False)


def engine_of(name: str | None) -> Engine:
    """Return the engine with this name; UNDETECTED for None and for unknown names."""
    return UNDETECTED if name is None else ENGINES.get(name, UNDETECTED)


# The dialects of all engines with priorities, by name.
DIALECTS: Final = {
    dialect.name: dialect
    for engine in ENGINES.values()
    for dialect in (engine.dialect, engine.low_first)
    if dialect is not None and dialect is not SILENT
}


def _union(attribute: str) -> frozenset[Any]:
    """Return the members that this attribute of `Blocked` has at any of the engines."""
    return frozenset().union(*[getattr(engine.blocked, attribute) for engine in ENGINES.values()])


# Paths that stop an engine, change it or show its state; they are blocked for clients.
CONTROL: Final[frozenset[bytes]] = _union("control")
# Prefixes of such paths. All paths with these prefixes are blocked for clients.
CONTROL_BELOW: Final[tuple[bytes, ...]] = tuple(sorted(_union("control_below")))
# Request headers that an engine obeys and that clients must not send.
PRIVATE_HEADERS: Final[frozenset[bytes]] = _union("private_headers")
# Members of a body by which an engine chooses where it reads or writes.
PRIVATE_MEMBERS: Final[frozenset[str]] = _union("private_members")
# Objects in a body in which an engine reads private members, too.
MEMBER_NESTS: Final[frozenset[str]] = _union("member_nests")
# Paths whose answers have token counts in a format of their own.
COUNTS_NATIVELY: Final[frozenset[bytes]] = frozenset().union(
    *[engine.counts_natively for engine in ENGINES.values()]
)
# Inference paths of the engines' own APIs; several engines may have the same path.
NATIVE_PATHS: Final = [path for engine in ENGINES.values() for path in engine.native]
# Paths on which at least one engine does not read `model`.
ADAPTER_PATHS: Final = frozenset(
    [path for e in ENGINES.values() if e.adapters is not None for path in e.adapters.by_path]
)
# Paths whose requests can have an ID, for an abort, at one of the engines.
ABORT_PATHS: Final = frozenset(
    [path for e in ENGINES.values() if e.abort is not None for path in e.abort.paths]
)
_PUBLISHERS: Final = tuple([e.publisher for e in ENGINES.values() if e.publisher is not None])


def publishers_of(engine: Engine) -> tuple[Publisher, ...]:
    """Return the ways in which an engine may report its publishers of KV events.

    If the engine was not detected, the result has the ways of all engines.
    """
    if not engine.is_recognised:
        return _PUBLISHERS
    return () if engine.publisher is None else (engine.publisher,)


# Patterns in an answer which show that the engine does not support priorities.
REFUSALS: Final = re.compile(
    b"(?is)" + b"|".join({words: None for d in DIALECTS.values() for words in d.refusals})
)
