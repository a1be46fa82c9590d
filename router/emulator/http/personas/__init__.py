"""Whom an emulated engine pretends to be: one engine a file, by name.

A persona decides everything a client or a router can see that differs between engines: which
endpoints there are, metrics, health, load, priority, when a stream's head comes, how it ends, what
errors look like, and how soon it notices that a client left. It never schedules anything: that is
the core's, set up by `settings` as the persona's engine would be.
"""

from __future__ import annotations

from importlib import import_module

from router.emulator.engine import Engine
from router.emulator.http.personas.base import Persona


def persona_class(name: str) -> type[Persona]:
    """The class PERSONA of the file of that name."""
    found: type[Persona] = import_module(f"{__name__}.{name}").PERSONA
    return found


def persona_of(engine: Engine) -> Persona:
    """The one its settings name."""
    return persona_class(engine.settings.persona)(engine)
