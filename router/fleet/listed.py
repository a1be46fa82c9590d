"""Finds the models of one replica, from its configuration and from its own model list. Also formats
a list of models for error messages.

Pure functions. Must never: look at a replica, or send a request to one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from heapq import nsmallest
from typing import Final

from router.config.model import Replica as Config

ANY: Final = "*"  # The model name that stands for every name that no replica lists.
_NAMED: Final = 20


def served(config: Config, learned: frozenset[str] | None) -> frozenset[str] | None:
    """Return the models of a replica; `None` if they are unknown.

    `learned`: the models in the replica's own list; `None` if it has listed none.
    """
    names = learned
    if config.models is not None:
        names = frozenset(config.models)
        if ANY in names and learned is not None:
            names |= learned
    if config.unknown_models == "forward":
        return (names or frozenset()) | {ANY}
    if config.unknown_models == "reject" and names is not None:
        return names - {ANY}
    return names


def served_text(listed: Iterable[str], models: Container[str] | None) -> str:
    """Return listed models as text for an error message.

    `models`: the models that the client may use; `None`: all models.
    """
    names = [n for n in listed if n != ANY and (models is None or n in models)]
    if not names:
        return ""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    named = nsmallest(_NAMED, names)
    return "; served here: " + ", ".join(f"`{name}`" for name in named) + more
