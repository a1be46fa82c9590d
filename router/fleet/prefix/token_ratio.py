"""Estimates the tokens of a prompt from its bytes, with a ratio that is learned per model.

Must never: keep more than `TokenRatio.MODELS` models, or learn from a prompt that is not text.
"""

from __future__ import annotations

from math import ceil
from typing import Final


class TokenRatio:
    """Bytes of a prompt per token, learned per model from the `usage` of answers.

    The number is an exponentially weighted mean, because the languages of a model's users may
    change. Values that no tokenizer produces from text are ignored (such as those of images).
    """

    DEFAULT: Final = 4.0  # bytes per token of English prose with its JSON
    LEAST: Final = 1.0  # bytes per token of a byte-level tokenizer
    MOST: Final = 16.0  # bytes per token of source code with long identifiers and runs of spaces
    # weight of a new observation in the mean; the first few observations have a higher weight
    WEIGHT: Final = 0.05
    # minimum tokens of a prompt; a shorter prompt is mostly chat template and is ignored
    MIN_TOKENS: Final = 16
    MODELS: Final = 1000  # maximum number of models; model names come from clients

    __slots__ = ("_ratios",)

    def __init__(self) -> None:
        self._ratios: dict[str | None, list[float]] = {}  # model -> [ratio, observations]

    def of(self, model: str | None) -> float:
        known = self._ratios.get(model)
        return self.DEFAULT if known is None else known[0]

    def tokens(self, model: str | None, size: int) -> int:
        """Estimated tokens of a prompt of `size` bytes."""
        return ceil(size / self.of(model))

    def learn(self, model: str | None, size: int, tokens: int | None) -> None:
        """Learn that a prompt of `size` bytes had `tokens` tokens, as counted by the engine."""
        if tokens is None or tokens < self.MIN_TOKENS or size <= 0:
            return
        seen = size / tokens
        if not self.LEAST <= seen <= self.MOST:
            return
        known = self._ratios.get(model)
        if known is None:
            if len(self._ratios) >= self.MODELS:
                del self._ratios[next(iter(self._ratios))]  # drop the oldest entry
            known = self._ratios[model] = [self.DEFAULT, 0.0]
        count = known[1] = known[1] + 1.0
        weight = self.WEIGHT
        if count < 1.0 / weight:
            weight = 1.0 / (count + 1.0)
        known[0] += (seen - known[0]) * weight
