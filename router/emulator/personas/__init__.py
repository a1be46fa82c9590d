"""Whom an emulated engine pretends to be: one engine a file, by name.

A persona decides everything a client or a router can see that differs between engines: which
endpoints there are, metrics, health, load, priority, when a stream's head comes, how it ends, what
errors look like, and how soon it notices that a client left. It never schedules anything: that is
the core's, set up by `settings` as the persona's engine would be.
"""

from __future__ import annotations

from router.emulator.engine import Engine
from router.emulator.personas.base import Persona
from router.emulator.personas.llamacpp import LlamaCpp
from router.emulator.personas.sglang import Sglang
from router.emulator.personas.tgi import Tgi
from router.emulator.personas.trtllm import TrtLlm
from router.emulator.personas.vllm import Vllm

_ALL: tuple[type[Persona], ...] = (Vllm, Sglang, TrtLlm, Tgi, LlamaCpp)


def persona_of(engine: Engine) -> Persona:
    """The one its settings name."""
    return next(one for one in _ALL if one.name == engine.settings.persona)(engine)
