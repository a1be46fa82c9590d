"""Estimates the tokens of a prompt from its bytes, with a ratio that is learned per model.

Must never: keep more than `TokenRatio.MODELS` models, or learn from a prompt that is not text.
"""

from __future__ import annotations

from math import ceil
from typing import Final


class TokenRatio:
    """Bytes of a prompt per token, learned per model from the `usage` of answers.

    The ratio is an exponentially weighted mean, because the languages of a model's users may
    change. Ratios that no tokenizer produces from text are ignored; prompts with images have such
    ratios.
    """

    # The ratio of a model before anything was learned: English prose in JSON.
    DEFAULT: Final = 4.0
    # A smaller measured ratio is ignored. A byte-level tokenizer has 1 byte per token.
    LEAST: Final = 1.0
    # A larger measured ratio is ignored. Source code with long identifiers and many spaces has up
    # to 16 bytes per token.
    MOST: Final = 16.0
    # Weight of a new observation in the mean. The first few observations have a higher weight.
    WEIGHT: Final = 0.05
    # A prompt with fewer tokens is ignored, because it consists mostly of the chat template.
    MIN_TOKENS: Final = 16
    # The largest ratio is learned from prompts of at least this many tokens. In shorter prompts,
    # the syntax of JSON has a large share of the bytes.
    LONG_TOKENS: Final = 256
    # Each prompt with a smaller ratio lowers the largest ratio by this share of the difference.
    FADES: Final = 0.01
    MODELS: Final = 1000  # Maximum number of models, because model names come from clients.

    __slots__ = ("_ratios",)

    def __init__(self) -> None:
        # model -> [ratio, number of observations, largest ratio]
        self._ratios: dict[str | None, list[float]] = {}

    def of(self, model: str | None) -> float:
        known = self._ratios.get(model)
        return self.DEFAULT if known is None else known[0]

    def largest(self, model: str | None) -> float:
        """Return the largest ratio that was seen lately, to bound a prompt's tokens from below.

        It begins with `MOST`, so nothing is assumed about a model that has not answered.
        """
        known = self._ratios.get(model)
        return self.MOST if known is None else known[2]

    def tokens(self, model: str | None, size: int) -> int:
        """Return the estimated number of tokens of a prompt of `size` bytes."""
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
            known = self._ratios[model] = [self.DEFAULT, 0.0, self.MOST]
        count = known[1] = known[1] + 1.0
        weight = self.WEIGHT
        if count < 1.0 / weight:
            weight = 1.0 / (count + 1.0)
        known[0] += (seen - known[0]) * weight
        if tokens >= self.LONG_TOKENS:
            largest = known[2]
            known[2] = max(seen, largest + (seen - largest) * self.FADES)
