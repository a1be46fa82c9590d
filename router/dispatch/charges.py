"""Computes what a request reserves in its tenant's limits, and what it costs without token counts.

Some routes have answers without token counts, such as transcriptions and images. Their requests
cost the tokens that `usage.charges` states for a request, its bytes, and the time it takes.
"""

from __future__ import annotations

from math import ceil
from typing import Final

import msgspec

from router.config.model import Charge, Charges
from router.core.unreadable import NOT_JSON
from router.dispatch.exchange import Exchange
from router.dispatch.usage.token_counts import UNKNOWN
from router.intake.shapes import NativePrompts
from router.intake.stretch import Stretch
from router.intake.values import bytes_of, opening_of

# The number of answers that is assumed for a list of prompts that is too large to be counted.
_MANY: Final = 1024
_COUNTED_BYTES: Final = 1 << 20
# A larger body is not decoded to find its prompts; 8 MiB take up to 13 ms.
_READ_BYTES: Final = 8 << 20
_START: Final = 64
_elements: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


_native: Final = msgspec.json.Decoder(NativePrompts, strict=False).decode


class ChargeRules:
    """The charges of all routes."""

    __slots__ = ("_by_kind", "_by_path")

    def __init__(self, rules: Charges) -> None:
        self._by_kind = {"audio": rules.audio, "tokenize": rules.tokenize, "other": rules.other}
        self._by_path = {path.encode(): charge for path, charge in rules.paths.items()}

    def _of(self, x: Exchange) -> Charge | None:
        """Return the charge of a request's route; `None`: its tokens are counted or estimated."""
        if self._by_path:
            charge = self._by_path.get(x.asked.path)
            if charge is not None:
                return charge
        return self._by_kind.get(x.route.kind)

    def reserved(self, x: Exchange) -> tuple[int, int, int]:
        """Return (prompt tokens, limit of output tokens, answers) that a request reserves."""
        asked = x.asked
        prompt = asked.held_tokens(x.view.prompt_tokens)
        charge = self._of(x)
        if charge is not None:
            own = _tokens(charge, asked.body_bytes, 0.0)
            if asked.route.light:
                return own, 0, 1
            prompt = max(prompt, own)
        if not asked.route.decodes:
            return prompt, 0, 1
        return prompt, asked.output_limit, asked.choices * _prompts(x)

    def cost(self, x: Exchange, now: float) -> int:
        """Return the tokens that a request costs at least, when it has ended. 0: none."""
        usage = x.work.usage
        if usage.exact:
            return 0
        if not x.reply.is_work and usage is UNKNOWN:
            return 0  # No engine has worked for the request, or it has refused the request.
        charge = self._of(x)
        if charge is None:
            return 0
        last = x.driver.state.winner or x.driver.state.last
        return _tokens(charge, x.asked.body_bytes, 0.0 if last is None else now - last.began)


def _tokens(charge: Charge, body_bytes: int, seconds: float) -> int:
    tokens = charge.request + charge.second * seconds + charge.kilobyte * body_bytes / 1000.0
    return ceil(tokens)


def _prompts(x: Exchange) -> int:
    """Return the number of prompts in a body; each gets its own answers."""
    prompt = x.asked.fields.prompt
    try:
        if prompt is None:
            return _native_answers(x) if x.route.kind == "generate" else 1
        return _length(prompt, x.asked.body_bytes, _LISTS)
    except NOT_JSON:
        return 1  # The engine refuses the body.


# How a list of prompts begins. A list of numbers is one prompt, as token IDs.
_LISTS: Final = (b'["', b"[[")
_EMBEDDINGS: Final = (b"[[[",)


def _length(prompt: msgspec.Raw | Stretch, body_bytes: int, lists: tuple[bytes, ...]) -> int:
    """Return the number of prompts in a member. `lists`: how a list of prompts begins."""
    if opening_of(prompt) != ord("["):
        return 1
    start = prompt.cut(0, _START) if isinstance(prompt, Stretch) else bytes(prompt)[:_START]
    if not start.translate(None, b" \t\r\n").startswith(lists):
        return 1
    return _MANY if body_bytes > _COUNTED_BYTES else len(_elements(bytes_of(prompt)))


def _native_answers(x: Exchange) -> int:
    """Return the number of answers to a body whose prompts are in members of an engine's own."""
    size = x.asked.body_bytes
    if size > _READ_BYTES:
        return _MANY
    body = _native(b"".join(x.body or ()))
    found = [_length(each, size, _LISTS) for each in (body.text, body.input_ids) if each]
    if body.input_embeds:
        found.append(_length(body.input_embeds, size, _EMBEDDINGS))
    prompts = max(found, default=1)
    sampling = body.sampling_params
    if isinstance(sampling, list):
        return max(prompts, sum([max(1, each.n) for each in sampling]))
    return prompts if sampling is None else prompts * max(1, sampling.n)
