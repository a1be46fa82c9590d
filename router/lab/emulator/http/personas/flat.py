"""The part that the personas of SGLang and TensorRT-LLM share: answers in OpenAI's format with an
engine's own details, and error objects that are not nested.
"""

from __future__ import annotations

from typing import ClassVar

from aiohttp import web

from router.lab.emulator.http.bodies import Refusal
from router.lab.emulator.http.job import Job
from router.lab.emulator.http.personas.base import Persona, flat_error
from router.lab.emulator.http.replies import json_value
from router.lab.emulator.http.shapes.base import Shape, Usage
from router.lab.emulator.http.shapes.openai import OpenAiShape, Style


class FlatPersona(Persona):
    style: ClassVar[Style]

    def chat(self, id: str, model: str, created: int, jobs: list[Job], usage: Usage) -> Shape:
        return OpenAiShape(self.style, True, id, model, created, jobs, usage)

    def completion(
        self, id: str, model: str, created: int, jobs: list[Job], usage: Usage, echo: str
    ) -> Shape:
        return OpenAiShape(self.style, False, id, model, created, jobs, usage, echo=echo)

    def refusal(self, refusal: Refusal) -> web.Response:
        error = flat_error(refusal.status, refusal.message, refusal.type, refusal.param)
        return json_value(error, refusal.status)
