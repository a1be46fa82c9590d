"""Finds the API key of a request in Authorization or another field, and what the key allows.

A key is looked up by its SHA-256 hash, so the time of a lookup does not show how close a guess is.
Results are cached by header line, so a repeated line is hashed once. Lines without a known key have
a separate cache, so that guesses do not evict known keys. Both caches are bounded.

Must never: reveal a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from math import inf
from typing import Final, TypeVar

from policies.allowed import Allowed
from router.config.keys import LONGEST, KeyLine, ModelBudgets, expiry_of
from router.core.urgency import NUMBERS

_MEMO: Final = 4096  # maximum number of header lines in each cache
_SHARED: Final = 1024  # maximum number of values that keys share
_LINE: Final = LONGEST + 64  # maximum bytes of a header line with a key; 64 bytes for the rest

# The limits of tokens and of money in a day, a week and a month; infinity, or empty: no limit.
Limits = tuple[tuple[float, float], ...]
_NONE: Final[dict[str, Limits]] = {}
_T = TypeVar("_T")


class Key:
    """The rights of one key. All keys with the same name share one object."""

    __slots__ = (
        "allowed_regions",
        "budgets",
        "ceiling",
        "concurrency",
        "may_hedge",
        "model_budgets",
        "models",
        "name",
        "names_users",
        "region",
        "requests_per_minute",
        "tier",
        "tokens_per_minute",
        "tpot_slo_s",
        "ttft_slo_s",
        "weight",
    )

    def __init__(self, line: KeyLine) -> None:
        self.name = line.name
        self.tier = line.tier
        # The most urgent priority class that the key's requests may have; -1: not set for the key.
        self.ceiling = -1 if line.ceiling is None else NUMBERS[line.ceiling]
        self.models: frozenset[str] | None = None
        if line.models is not None:
            self.models = _shared(frozenset(line.models))
        self.concurrency = line.concurrency
        self.requests_per_minute = line.requests_per_minute
        self.tokens_per_minute = line.tokens_per_minute
        # The budgets of tokens and of money in a day, a week and a month; infinity: no budget. The
        # tuple is empty if the key has no budget.
        self.budgets = _budgets(line)
        self.model_budgets = _NONE
        if line.model_budgets:
            self.model_budgets = {name: _budgets(b) for name, b in line.model_budgets.items()}
        self.weight = line.weight
        # The SLOs of the key's requests, in seconds; 0: the SLOs of the priority class are used.
        self.ttft_slo_s = 0.0 if line.ttft_slo_ms is None else line.ttft_slo_ms / 1000.0
        self.tpot_slo_s = 0.0 if line.tpot_slo_ms is None else line.tpot_slo_ms / 1000.0
        self.names_users = line.names_users
        self.may_hedge = line.may_hedge
        self.region = line.region
        self.allowed_regions: Allowed | None = None
        if line.allowed_regions is not None:
            self.allowed_regions = Allowed(line.allowed_regions)

    @property
    def is_limited(self) -> bool:
        return (
            self.concurrency is not None
            or self.requests_per_minute is not None
            or self.tokens_per_minute is not None
        )


def budget_of_model(name: str, model: str) -> str:
    """Return the name under which the use of one model is charged. No key has such a name."""
    return f"{name} ({model})"


@lru_cache(maxsize=_SHARED)
def _shared(value: _T) -> _T:
    """Return an equal value that other keys have: most keys of a large file differ in few."""
    return value


def _budgets(line: KeyLine | ModelBudgets) -> Limits:
    found = (
        (line.tokens_per_day or inf, line.cost_per_day or inf),
        (line.tokens_per_week or inf, line.cost_per_week or inf),
        (line.tokens_per_month or inf, line.cost_per_month or inf),
    )
    return _shared(found) if any(min(pair) < inf for pair in found) else ()


class Keyring:
    """The keys of the keys file. A reload creates a new `Keyring`.

    An expired key is removed by `expire`, which must be called at `expires_at` or later.
    """

    __slots__ = (
        "_by_hash",
        "_expiries",
        "_memo",
        "_size",
        "_unknown",
        "budgets",
        "by_name",
        "expires_at",
        "limits_regions",
        "tiers",
    )

    def __init__(self, lines: Sequence[KeyLine] = ()) -> None:
        self.by_name: dict[str, Key] = {}
        self.budgets: dict[str, Limits] = {}  # Also those for one model, by `budget_of_model`.
        self.tiers: set[str] = set()
        self.limits_regions = False  # Whether any key has allowed regions.
        self._by_hash: dict[bytes, Key] = {}
        self._expiries: dict[bytes, float] = {}  # Seconds since 1970, by hash.
        self._size = len(lines)
        self._memo: dict[bytes, Key] = {}
        self._unknown: dict[bytes, None] = {}  # header lines that contain no known key
        for line in lines:
            key = self.by_name.get(line.name)
            if key is None:
                key = self.by_name[line.name] = Key(line)
                self.tiers.add(key.tier)
                self.limits_regions |= key.allowed_regions is not None
                if key.budgets:
                    self.budgets[key.name] = key.budgets
                for model, budgets in key.model_budgets.items():
                    self.budgets[budget_of_model(key.name, model)] = budgets
            digest = bytes.fromhex(line.hash[len("sha256:") :])
            self._by_hash[digest] = key
            if line.expires:
                self._expiries[digest] = expiry_of(line)
        # When the next key expires; infinity: never.
        self.expires_at = min(self._expiries.values(), default=inf)

    def __len__(self) -> int:
        """The number of keys, with expired ones: without the last key, keys are still in use."""
        return self._size

    def expire(self, wall: float) -> bool:
        """Removes the keys that have expired, and returns whether there are any.

        `wall`: seconds since 1970.
        """
        if wall < self.expires_at:
            return False
        for digest, at in [*self._expiries.items()]:
            if at <= wall:
                del self._expiries[digest], self._by_hash[digest]
        kept = {key.name for key in self._by_hash.values()}
        self.by_name = {name: key for name, key in self.by_name.items() if name in kept}
        self._memo.clear()
        self.expires_at = min(self._expiries.values(), default=inf)
        return True

    def find(self, authorization: bytes | None, api_key: bytes | None) -> Key | None:
        """Return the key of a request; `None` if it has no known key.

        The arguments are whole header lines.
        """
        if not self._by_hash:
            return None
        line = authorization
        if line is not None:
            known = self._memo.get(line)
            if known is None and line not in self._unknown:
                known = self._look_up(line, is_bearer=True)
            if known is not None:
                return known
        if api_key is not None:
            known = self._memo.get(api_key)
            if known is None and api_key not in self._unknown:
                known = self._look_up(api_key, is_bearer=False)
            return known
        return None

    def _look_up(self, line: bytes, is_bearer: bool) -> Key | None:
        if len(line) > _LINE:
            return None
        token = token_of(line, is_bearer=is_bearer)
        key = None if token is None else self._by_hash.get(sha256(token).digest())
        if key is None:
            if len(self._unknown) >= _MEMO:
                self._unknown.clear()
            self._unknown[line] = None
        else:
            if len(self._memo) >= _MEMO:
                self._memo.clear()
            self._memo[line] = key
        return key


def token_of(line: bytes, *, is_bearer: bool) -> bytes | None:
    """Return the secret in a header line; None if its scheme is not Bearer.

    `is_bearer`: the field is Authorization, else one with only a key.
    """
    value = line[line.find(b":") + 1 :].strip(b" \t")
    if not is_bearer:
        return value
    if value[:7].lower() != b"bearer ":
        return None
    return value[7:].strip(b" \t")
