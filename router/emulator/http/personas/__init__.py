"""The engines that can be emulated: one engine per file, by name.

A persona defines everything visible to a client or a router that differs between engines:
endpoints, metrics, health, load, priority, the time of a stream's head, its end, error formats, and
how soon a disconnect is noticed. A persona never schedules requests: the core
does this, and `settings` configures the core like the persona's engine.
"""

from __future__ import annotations

from importlib import import_module

from router.emulator.engine import Engine
from router.emulator.http.personas.base import Persona


def persona_class(name: str) -> type[Persona]:
    """The class PERSONA in the file with the engine's name."""
    found: type[Persona] = import_module(f"{__name__}.{name}").PERSONA
    return found


def persona_of(engine: Engine) -> Persona:
    """The persona of the engine's settings."""
    return persona_class(engine.settings.persona)(engine)
