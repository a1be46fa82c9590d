"""Estimates the tokens of a text from its bytes, with a ratio that is learned per model.

What depends on the model alone, such as the size of a cache, uses the ratio of all requests. The
tokens of a request are estimated with the ratio of its account and model, so no account can change
the estimates of another one that has a ratio. A new account begins with the mean of the accounts'
first prompts, each with at most `DEFAULT`. So each account counts once, and none can hide tokens of
new accounts by a large ratio. For a budget, the prompt of a new account has the most tokens that a
prompt of its size had lately (`doubt`).

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
    # Each prompt with a smaller ratio lowers the largest ratio by this share of the difference, and
    # each prompt with a larger ratio raises the least ratio.
    FADES: Final = 0.01
    MODELS: Final = 1000  # Maximum number of models, because model names come from clients.
    # The largest ratio that is assumed for an account. Most prose has fewer bytes per token. A
    # tenant could otherwise teach a large ratio, and hide the tokens of requests that it cancels.
    TRUSTED: Final = 5.0
    ACCOUNTS: Final = 4000  # Maximum number of pairs of an account and a model.
    # Weight of a stream without counts, for an account that no engine has counted.
    STREAM_WEIGHT: Final = 0.25

    __slots__ = ("_of_accounts", "_ratios")

    def __init__(self) -> None:
        # model -> [ratio, number of counted prompts, largest ratio, least ratio, ratio of new
        # accounts, number of accounts in it]
        self._ratios: dict[str | None, list[float]] = {}
        # (account, model) -> [ratio, number of counted prompts]
        self._of_accounts: dict[tuple[str, str | None], list[float]] = {}

    def of(self, model: str | None) -> float:
        known = self._ratios.get(model)
        return self.DEFAULT if known is None else known[0]

    def of_account(self, account: str, model: str | None) -> float:
        """Return the ratio with which the tokens of an account's requests are estimated."""
        own = self._of_accounts.get((account, model))
        if own is not None:
            return min(own[0], self.TRUSTED)
        known = self._ratios.get(model)
        return self.DEFAULT if known is None else known[4]

    def doubt(self, account: str, model: str | None, size: int) -> int:
        """Return by how many tokens the estimate for a text of `size` bytes may be too small.

        It is 0 for an account of which an engine has counted a prompt.
        """
        own = self._of_accounts.get((account, model))
        if own is not None and own[1]:
            return 0
        known = self._ratios.get(model)
        least = self.LEAST if known is None else known[3]
        return max(0, ceil(size / least) - int(size / self.of_account(account, model)))

    def largest(self, model: str | None) -> float:
        """Return the largest ratio that was seen lately, to bound a prompt's tokens from below.

        It begins with `MOST`, so nothing is assumed about a model that has not answered.
        """
        known = self._ratios.get(model)
        return self.MOST if known is None else known[2]

    def tokens(self, model: str | None, size: int) -> int:
        """Return the estimated number of tokens of a prompt of `size` bytes."""
        return ceil(size / self.of(model))

    def learn(
        self, model: str | None, size: int, tokens: int | None, account: str | None = None
    ) -> None:
        """Learn that a prompt of `size` bytes had `tokens` tokens, as counted by the engine.

        `account`: the account of the request; `None`: it has none.
        """
        if tokens is None or tokens < self.MIN_TOKENS or size <= 0:
            return
        seen = size / tokens
        if not self.LEAST <= seen <= self.MOST:
            return
        known = self._ratios.get(model)
        if known is None:
            if len(self._ratios) >= self.MODELS:
                del self._ratios[next(iter(self._ratios))]  # drop the oldest entry
            known = [self.DEFAULT, 0.0, self.MOST, self.LEAST, self.DEFAULT, 0.0]
            self._ratios[model] = known
        self._add(known, 0, seen)
        if tokens >= self.LONG_TOKENS:
            largest, least = known[2], known[3]
            known[2] = max(seen, largest + (seen - largest) * self.FADES)
            known[3] = min(seen, least + (seen - least) * self.FADES)
        if account is not None:
            own = self._own(account, model)
            if not own[1]:
                self._add(known, 4, min(seen, self.DEFAULT))
            self._add(own, 0, seen)

    def learn_stream(self, model: str | None, account: str, size: int, tokens: int) -> None:
        """Learn from a stream without counts, for an account that no engine has counted.

        `size`: the bytes of its text. `tokens`: the least number of its tokens, so the ratio is at
        most their quotient.
        """
        if tokens < self.MIN_TOKENS or size < tokens * self.LEAST:
            return
        most = size / tokens
        if most < self.of_account(account, model):
            own = self._own(account, model)
            if not own[1]:
                own[0] += (most - own[0]) * self.STREAM_WEIGHT

    def _own(self, account: str, model: str | None) -> list[float]:
        pair = account, model
        own = self._of_accounts.get(pair)
        if own is None:
            first = self.of_account(account, model)
            if len(self._of_accounts) >= self.ACCOUNTS:
                del self._of_accounts[next(iter(self._of_accounts))]
            own = self._of_accounts[pair] = [first, 0.0]
        return own

    def _add(self, means: list[float], at: int, seen: float) -> None:
        """Add a ratio to the mean at this index, whose number of ratios follows it."""
        means[at + 1] += 1.0
        means[at] += (seen - means[at]) * max(self.WEIGHT, 1.0 / means[at + 1])
