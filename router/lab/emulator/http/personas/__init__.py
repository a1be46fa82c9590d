"""The engines that can be emulated. Each engine's persona is in the file with the engine's name.

A persona defines everything that a client or a router sees and that differs between engines:
endpoints, metrics, health, load, priorities, the time at which a stream's head is sent, the end of
a stream, error formats, and how soon a disconnect is noticed. A persona never schedules requests.
The core schedules them, and `settings` configures the core like the emulated engine.
"""

from __future__ import annotations

from router.lab.emulator.engine import Engine
from router.lab.emulator.http.personas.base import Persona
from router.lab.emulator.settings import persona_named


def persona_class(name: str) -> type[Persona]:
    """The persona class of the engine `name`: `PERSONA` in the file with that name."""
    found: type[Persona] = persona_named(name)
    return found


def persona_of(engine: Engine) -> Persona:
    """The persona that the engine's settings name."""
    return persona_class(engine.settings.persona)(engine)
