"""How much a tenant may have: requests at once, requests a minute, tokens a minute.

Requests and tokens are token buckets that hold a minute's worth and fill evenly: over any T seconds
a tenant gets at most (60 + T) / 60 of what it may have in a minute. What a request will cost in
tokens is not known when it comes; an estimate is taken then, and the truth settled at its end. So
the bucket may owe, and nobody gets in until the debt is paid: over time the rate is exact, however
bad the estimate.

A refusal takes nothing. Where a bucket refuses, the wait it tells is exact: asked again after it,
with nothing else in between, the bucket allows the same request.

Pure: `now` is monotonic seconds, passed in. Must never: sleep, or know whose limits they are.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

_MINUTE_S: Final = 60.0
_ROUNDING: Final = 1e-9  # of a bucket: less than that is missing by arithmetic only
SMOOTHING: Final = 0.2  # of a request's output, in the mean of its tenant (VTC: the last five)


class Verdict(IntEnum):
    YES = 0
    CONCURRENCY = 1
    REQUESTS = 2
    TOKENS = 3


class Bucket:
    """So much a minute; a minute's worth at once."""

    __slots__ = ("_at", "_level", "_per_s", "size")

    def __init__(self, per_minute: float, now: float) -> None:
        self.size = per_minute
        self._per_s = per_minute / _MINUTE_S
        self._level = per_minute
        self._at = now

    def adopt(self, per_minute: float, now: float) -> None:
        """Another rate from now on; what was used stays used, as a share."""
        self._fill(now)
        self._level *= per_minute / self.size
        self.size = per_minute
        self._per_s = per_minute / _MINUTE_S

    def wait_s(self, amount: float, now: float) -> float:
        """Seconds until so much is there; 0: now. More than the bucket holds needs a full one."""
        self._fill(now)
        missing = min(amount, self.size) - self._level
        return missing / self._per_s if missing > self.size * _ROUNDING else 0.0

    def take(self, amount: float) -> None:
        """Take it, whether it is there or not; a negative amount is given back."""
        self._level = min(self.size, self._level - amount)

    def level(self, now: float) -> float:
        """What is there; negative: what is owed."""
        self._fill(now)
        return self._level

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._level = min(self.size, self._level + (now - self._at) * self._per_s)
            self._at = now


class Account:
    """One tenant's limits and what it has of them now. None: no limit."""

    __slots__ = ("_concurrency", "_output", "_requests", "_tokens", "under_way", "wait_s")

    def __init__(
        self,
        concurrency: int | None,
        requests_per_minute: float | None,
        tokens_per_minute: float | None,
        now: float,
    ) -> None:
        self._requests: Bucket | None = None
        self._tokens: Bucket | None = None
        self._output = 0.0  # tokens of an answer, usually
        self.under_way = 0
        self.wait_s = 0.0  # after a refusal of `ask`: until it would be allowed; 0: nobody knows
        self._concurrency = concurrency
        self.adopt(concurrency, requests_per_minute, tokens_per_minute, now)

    def adopt(
        self,
        concurrency: int | None,
        requests_per_minute: float | None,
        tokens_per_minute: float | None,
        now: float,
    ) -> None:
        """Other limits from now on; what is under way and used stays so."""
        self._concurrency = concurrency
        self._requests = _adopted(self._requests, requests_per_minute, now)
        self._tokens = _adopted(self._tokens, tokens_per_minute, now)

    def expected(self, prompt: int, most_output: int | None) -> int:
        """Tokens of a request with such a prompt that wants so much at most (None: it says not)."""
        output = self._output
        if most_output is not None and most_output < output:
            output = float(most_output)
        return prompt + int(output)

    def ask(self, tokens: int, now: float) -> Verdict:
        """Take a request of about so many tokens, or say what is in its way (`wait_s`: how long).

        After YES comes exactly one `settle`: `Grant` sees to it.
        """
        self.wait_s = 0.0
        if self._concurrency is not None and self.under_way >= self._concurrency:
            return Verdict.CONCURRENCY
        wait_s = 0.0
        verdict = Verdict.YES
        requests, bucket = self._requests, self._tokens
        if requests is not None:
            wait_s = requests.wait_s(1.0, now)
            if wait_s > 0.0:
                verdict = Verdict.REQUESTS
        if bucket is not None:
            longer_s = bucket.wait_s(float(tokens), now)
            if longer_s > wait_s:
                wait_s = longer_s
                verdict = Verdict.TOKENS
        if verdict != Verdict.YES:
            self.wait_s = wait_s
            return verdict
        if requests is not None:
            requests.take(1.0)
        if bucket is not None:
            bucket.take(float(tokens))
        self.under_way += 1
        return Verdict.YES

    def settle(self, taken: int, used: int | None, output: int | None, now: float) -> None:
        """A request is over that `taken` tokens were taken for. `used`: as the engine counted,
        None: nobody knows, so that the estimate stands; `output`: those of its answer."""
        self.under_way -= 1
        if output is not None:
            self._output += (output - self._output) * SMOOTHING
        bucket = self._tokens
        if bucket is not None and used is not None and used != taken:
            bucket.level(now)
            bucket.take(float(used - taken))

    def left(self, now: float) -> tuple[float | None, float | None]:
        """(requests, tokens) that are there; negative: owed; None: no limit."""
        return (
            None if self._requests is None else self._requests.level(now),
            None if self._tokens is None else self._tokens.level(now),
        )


class Grant:
    """What one request has of its tenant's limits: given back once, by whoever comes first."""

    __slots__ = ("_account", "_taken", "taken_of_prompt")

    def __init__(self, account: Account, taken: int, taken_of_prompt: int) -> None:
        """After `account.ask(taken, now)` said YES; so many of them are for the prompt."""
        self._account: Account | None = account
        self._taken = taken
        self.taken_of_prompt = taken_of_prompt

    def settle(self, used: int | None, output: int | None, now: float) -> None:
        """The request is over; see `Account.settle`. Only the first call counts."""
        account, self._account = self._account, None
        if account is not None:
            account.settle(self._taken, used, output, now)


def _adopted(bucket: Bucket | None, per_minute: float | None, now: float) -> Bucket | None:
    if per_minute is None:
        return None
    if bucket is None:
        return Bucket(per_minute, now)
    if bucket.size != per_minute:
        bucket.adopt(per_minute, now)
    return bucket
