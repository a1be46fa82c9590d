"""How much a tenant may have: requests at once, requests a minute, tokens a minute.

Requests at once are those at replicas (`concurrency.py`). A request that may wait in the queue
takes its place when it is sent, not when it comes. A request that cannot wait takes it when it
comes, or is refused.

Requests and tokens a minute are token buckets that hold a minute's worth and fill evenly: over any
T seconds a tenant gets at most (60 + T) / 60 of what it may have in a minute. What a request will
cost in tokens is not known when it comes; an estimate is taken then, and the truth settled at its
end. So the bucket may owe, and nobody gets in until the debt is paid: over time the rate is exact,
however bad the estimate.

Requests of class batch get what the others leave. A tenant's limits therefore hold twice: once for
what is not batch, as if there were no batch, and once for everything, which only batch asks. So a
batch never causes the refusal of a chat. Its lines are refused while the tenant's other requests
use the limits, and its sender tries them again. A line counts from its arrival, also while it
waits, so that its sender holds back the rest. While batch requests that were sent earlier still
run, both together may exceed the concurrency.

A refusal takes nothing. Where a bucket refuses, the wait it tells is exact: asked again after it,
with nothing else in between, the bucket allows the same request.

Pure: `now` is monotonic seconds, passed in. Must never: sleep, or know whose limits they are.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from router.admission.concurrency import Concurrency

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


class _Share:
    """One set of limits, and what is used of it. None: no limit."""

    __slots__ = ("requests", "tokens")

    def __init__(self) -> None:
        self.requests: Bucket | None = None
        self.tokens: Bucket | None = None

    def adopt(
        self, requests_per_minute: float | None, tokens_per_minute: float | None, now: float
    ) -> None:
        self.requests = _adopted(self.requests, requests_per_minute, now)
        self.tokens = _adopted(self.tokens, tokens_per_minute, now)

    def take(self, tokens: int) -> None:
        if self.requests is not None:
            self.requests.take(1.0)
        if self.tokens is not None:
            self.tokens.take(float(tokens))

    def settle(self, taken: int, used: int | None, now: float) -> None:
        bucket = self.tokens
        if bucket is not None and used is not None and used != taken:
            bucket.level(now)
            bucket.take(float(used - taken))


class Account:
    """One tenant's limits and what it has of them now. None: no limit."""

    __slots__ = ("_all", "_output", "_own", "concurrency", "under_way", "wait_s")

    def __init__(
        self,
        concurrency: int | None,
        requests_per_minute: float | None,
        tokens_per_minute: float | None,
        now: float,
    ) -> None:
        self._own = _Share()  # of what is not batch
        self._all = _Share()
        self._output = 0.0  # tokens of an answer, usually
        self.wait_s = 0.0  # after a refusal of `ask`: until it would be allowed; 0: nobody knows
        self.under_way = 0  # requests that hold something of the limits
        self.concurrency = Concurrency(concurrency)
        self.adopt(concurrency, requests_per_minute, tokens_per_minute, now)

    def adopt(
        self,
        concurrency: int | None,
        requests_per_minute: float | None,
        tokens_per_minute: float | None,
        now: float,
    ) -> None:
        """Other limits from now on; what is under way and used stays so."""
        self.concurrency.adopt(concurrency, now)
        self._own.adopt(requests_per_minute, tokens_per_minute, now)
        self._all.adopt(requests_per_minute, tokens_per_minute, now)

    def expected(self, prompt: int, most_output: int | None) -> int:
        """Tokens of a request with such a prompt that wants so much at most (None: it says not)."""
        output = self._output
        if most_output is not None and most_output < output:
            output = float(most_output)
        return prompt + int(output)

    def ask(
        self, tokens: int, now: float, *, is_batch: bool = False, waits: bool = False
    ) -> Verdict:
        """Take a request of about so many tokens, or say what is in its way (`wait_s`: how long).

        `waits`: it goes to a queue, which counts it in `concurrency` while it is at a replica.
        After YES comes exactly one `settle`: `Grant` sees to it.
        """
        self.wait_s = 0.0
        share = self._all if is_batch else self._own
        concurrency = self.concurrency
        if is_batch:
            if not concurrency.may_enter():
                return Verdict.CONCURRENCY
        elif not waits and concurrency.free(False) <= 0:
            return Verdict.CONCURRENCY
        wait_s = 0.0
        verdict = Verdict.YES
        requests, bucket = share.requests, share.tokens
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
        if not is_batch:
            self._fill(now)
            self._own.take(tokens)
        else:
            concurrency.entered += 1
        self._all.take(tokens)
        self.under_way += 1
        if not waits:
            concurrency.take(is_batch, now)
        return Verdict.YES

    def _fill(self, now: float) -> None:
        """Bring the buckets that were not asked up to now."""
        for bucket in (self._all.requests, self._all.tokens):
            if bucket is not None:
                bucket.level(now)

    def settle(
        self,
        taken: int,
        used: int | None,
        output: int | None,
        now: float,
        *,
        is_batch: bool = False,
        waits: bool = False,
    ) -> None:
        """A request is over that `taken` tokens were taken for. `used`: as the engine counted,
        None: nobody knows, so that the estimate stands; `output`: those of its answer."""
        if output is not None:
            self._output += (output - self._output) * SMOOTHING
        if not is_batch:
            self._own.settle(taken, used, now)
        else:
            self.concurrency.entered -= 1
        self._all.settle(taken, used, now)
        self.under_way -= 1
        if not waits:
            self.concurrency.give(is_batch, now)

    def left(self, now: float) -> tuple[float | None, float | None]:
        """(requests, tokens) that are there for what is not batch; negative: owed; None: no
        limit."""
        requests, tokens = self._own.requests, self._own.tokens
        return (
            None if requests is None else requests.level(now),
            None if tokens is None else tokens.level(now),
        )


class Grant:
    """What one request has of its tenant's limits: given back once, by whoever comes first."""

    __slots__ = ("_account", "_is_batch", "_taken", "_waits", "taken_of_prompt")

    def __init__(
        self,
        account: Account,
        taken: int,
        taken_of_prompt: int,
        *,
        is_batch: bool = False,
        waits: bool = False,
    ) -> None:
        """After `account.ask` said YES to so many tokens; so many of them are for the prompt."""
        self._is_batch = is_batch
        self._waits = waits
        self._account: Account | None = account
        self._taken = taken
        self.taken_of_prompt = taken_of_prompt

    def settle(self, used: int | None, output: int | None, now: float) -> None:
        """The request is over; see `Account.settle`. Only the first call counts."""
        account, self._account = self._account, None
        if account is not None:
            account.settle(
                self._taken, used, output, now, is_batch=self._is_batch, waits=self._waits
            )


def _adopted(bucket: Bucket | None, per_minute: float | None, now: float) -> Bucket | None:
    if per_minute is None:
        return None
    if bucket is None:
        return Bucket(per_minute, now)
    if bucket.size != per_minute:
        bucket.adopt(per_minute, now)
    return bucket
