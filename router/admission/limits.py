"""The limits of a tenant: concurrent requests, requests per minute, tokens per minute.

Concurrent requests are the tenant's requests that run at replicas (`concurrency.py`). A request
that may wait in the queue is counted when it is sent, not when it arrives. A request that cannot
wait in the queue is counted, or refused, when it arrives.

Requests and tokens per minute are token buckets. A bucket holds the amount of one minute and fills
evenly, so in any T seconds a tenant gets at most (60 + T) / 60 of that amount. The tokens of a
request are not known when it arrives. So the number that it may use is taken from the bucket
(`expected_output.py`; at most half of the bucket, if not the prompt alone is larger), and it is
corrected to the true number when the request ends. The correction may make the level of a bucket
negative. Then requests are refused until the bucket has filled again. This debt is at most the
amount of one minute, so that one large answer does not lock its tenant out for long. Only requests
that use more than they took leave a debt: requests without a limit of output tokens, and large
ones.

Requests of class batch may use only what the tenant's other requests leave of the limits. So there
are two sets of buckets: one counts only requests that are not batch, the other counts all requests.
Only batch requests are checked against the set that counts all requests. So a batch never causes
the refusal of a chat request. Requests of a batch file are refused while the tenant's other
requests use the limits, and the batch server sends them again later. A batch request counts from
its arrival, even while it waits, so that the batch server does not send all requests of a file at
once. While batch requests sent earlier still run, all requests together may exceed the limit of
concurrent requests.

Several routers may share the limits (`router/share/limits_told.py`). What a tenant has used through
other routers is taken from the same buckets when it is heard (`used_elsewhere`). So a level becomes
negative after more routers than one have granted the same amount, and the excess is repaid, up to
the amount of one minute. While the routers cannot hear each other, each one uses one part of each
limit (`divide`).

A refused request takes nothing from a bucket. The wait time that a bucket returns is exact: after
it the bucket allows the same request, if there was no other request in between.

The functions are pure: `now` (monotonic seconds) is passed in. Must never: sleep, or depend on the
tenant's identity.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from router.admission.concurrency import Concurrency
from router.admission.expected_output import ExpectedOutput

_MINUTE_S: Final = 60.0
_ROUNDING: Final = 1e-9  # Tolerance for rounding errors of a bucket's level.


# Requests and tokens that are not of class batch, and requests and tokens of all classes.
Used = tuple[int, int, int, int]


class LimitCheck(IntEnum):
    WITHIN = 0
    CONCURRENCY = 1
    REQUESTS = 2
    TOKENS = 3


class Bucket:
    """A token bucket that is filled at a rate per minute, and holds the amount of one minute."""

    __slots__ = ("_at", "_level", "_parts", "_per_s", "size", "whole")

    def __init__(self, per_minute: float, now: float, parts: int = 1) -> None:
        """`parts`: see `divide`."""
        self.whole = per_minute
        self._parts = parts
        self.size = per_minute / parts
        self._per_s = self.size / _MINUTE_S
        self._level = self.size
        self._at = now

    def adopt(self, per_minute: float, now: float) -> None:
        """Set another rate; the share of the bucket that is used stays the same."""
        self._fill(now)
        self._level *= per_minute / self.whole
        self.whole = per_minute
        self._resize()

    def divide(self, parts: int, now: float) -> None:
        """Use one of `parts` equal parts of the rate.

        With more parts, the level is divided, too. With fewer parts, it stays: the rest of the
        whole level was available to other routers.
        """
        self._fill(now)
        if parts > self._parts:
            self._level *= self._parts / parts
        self._parts = parts
        self._resize()

    def _resize(self) -> None:
        self.size = self.whole / self._parts
        self._per_s = self.size / _MINUTE_S

    def wait_s(self, amount: float, now: float) -> float:
        """Return the seconds until `amount` is available in the bucket; 0: it is available now.

        For an amount above the bucket's size, return the seconds until the bucket is full.
        """
        self._fill(now)
        missing = min(amount, self.size) - self._level
        return missing / self._per_s if missing > self.size * _ROUNDING else 0.0

    def take(self, amount: float) -> None:
        """Take the amount from the bucket, even if its level becomes negative."""
        self._level -= amount

    def correct(self, more: float, now: float) -> None:
        """Take `more` tokens after a request that used more than it took; negative: give back.

        The debt is at most the amount of one minute.
        """
        self._fill(now)
        self._level = max(-self.size, min(self.size, self._level - more))

    def level(self, now: float) -> float:
        """Return the amount available in the bucket; negative: more was taken."""
        self._fill(now)
        return self._level

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._level = min(self.size, self._level + (now - self._at) * self._per_s)
            self._at = now


class _Share:
    """One pair of a tenant's token buckets: for requests and for tokens per minute. `None`: no
    limit."""

    __slots__ = ("parts", "requests", "tokens", "used_requests", "used_tokens")

    def __init__(self) -> None:
        self.requests: Bucket | None = None
        self.tokens: Bucket | None = None
        self.parts = 1
        # What this router has taken from the buckets in all, corrections included.
        self.used_requests = 0
        self.used_tokens = 0

    def adopt(
        self, requests_per_minute: float | None, tokens_per_minute: float | None, now: float
    ) -> None:
        self.requests = _adopted(self.requests, requests_per_minute, now, self.parts)
        self.tokens = _adopted(self.tokens, tokens_per_minute, now, self.parts)

    def divide(self, parts: int, now: float) -> None:
        self.parts = parts
        for bucket in (self.requests, self.tokens):
            if bucket is not None:
                bucket.divide(parts, now)

    def used_elsewhere(self, requests: int, tokens: int, now: float) -> None:
        if requests and self.requests is not None:
            self.requests.correct(float(requests), now)
        if tokens and self.tokens is not None:
            self.tokens.correct(float(tokens), now)

    def take(self, tokens: int) -> None:
        self.used_requests += 1
        self.used_tokens += tokens
        if self.requests is not None:
            self.requests.take(1.0)
        if self.tokens is not None:
            self.tokens.take(float(tokens))

    def settle(self, taken: int, used: int | None, now: float) -> None:
        if used is None or used == taken:
            return
        self.used_tokens += used - taken
        if self.tokens is not None:
            self.tokens.correct(float(used - taken), now)


class Account:
    """One tenant's limits and their current use. A limit of None means no limit."""

    __slots__ = ("_all", "_expected", "_own", "concurrency", "under_way", "wait_s")

    def __init__(
        self,
        concurrency: int | None,
        requests_per_minute: float | None,
        tokens_per_minute: float | None,
        now: float,
    ) -> None:
        # `_own` counts only requests that are not of class batch; `_all` counts all requests.
        self._own = _Share()
        self._all = _Share()
        self._expected = ExpectedOutput()
        # After a refusal by `ask`: seconds until the request would be allowed; 0: unknown.
        self.wait_s = 0.0
        # Requests that have been admitted by `ask` and not released by `settle` yet.
        self.under_way = 0
        self.concurrency = Concurrency(concurrency)
        self.adopt(concurrency, requests_per_minute, tokens_per_minute, now)

    def adopt(
        self,
        concurrency: int | None,
        requests_per_minute: float | None,
        tokens_per_minute: float | None,
        now: float,
    ) -> None:
        """Set other limits; running requests and used amounts stay counted."""
        self.concurrency.adopt(concurrency, now)
        self._own.adopt(requests_per_minute, tokens_per_minute, now)
        self._all.adopt(requests_per_minute, tokens_per_minute, now)

    def divide(self, parts: int, now: float) -> None:
        """Use one of `parts` equal parts of each limit; 1: the whole limits."""
        self.concurrency.divide(parts, now)
        self._own.divide(parts, now)
        self._all.divide(parts, now)

    @property
    def used(self) -> Used:
        """What this router has taken from the buckets in all, corrections included.

        A correction may be negative, so the tokens may become fewer.
        """
        own, both = self._own, self._all
        return own.used_requests, own.used_tokens, both.used_requests, both.used_tokens

    def set_used(self, used: Used) -> None:
        """Set the sums of `used`. No bucket is changed."""
        own, both = self._own, self._all
        own.used_requests, own.used_tokens, both.used_requests, both.used_tokens = used

    def used_elsewhere(self, more: Used, now: float) -> None:
        """Take from the buckets what other routers have granted, and was not counted before.

        The debt is at most the amount of one minute.
        """
        self._own.used_elsewhere(more[0], more[1], now)
        self._all.used_elsewhere(more[2], more[3], now)

    def reserved(self, prompt: int, most_output: int, answers: int) -> int:
        """Return the tokens that a request takes when it arrives.

        Its output takes at most the rest of half a minute's amount: otherwise a request with a
        large limit would wait until the bucket is full. `most_output`, `answers`: see
        `ExpectedOutput.of`.
        """
        tokens = prompt + self._expected.of(most_output, answers)
        bucket = self._own.tokens
        if bucket is None:
            return tokens
        most = max(prompt, int(bucket.size / 2.0))
        return min(tokens, most, int(bucket.size))

    def ask(
        self, tokens: int, now: float, *, is_batch: bool = False, waits: bool = False
    ) -> LimitCheck:
        """Reserve a request of about `tokens` tokens in all limits. Return WITHIN, or the limit
        that is reached.

        If a limit is reached, nothing is reserved, and `wait_s` is the time to wait. `waits`: the
        request goes to a queue, which counts it in `concurrency` while it is at a replica. WITHIN
        must be followed by exactly one call of `settle`; `Grant` ensures this.
        """
        self.wait_s = 0.0
        share = self._all if is_batch else self._own
        concurrency = self.concurrency
        if is_batch:
            if not concurrency.may_enter():
                return LimitCheck.CONCURRENCY
        elif not waits and concurrency.free(False) <= 0:
            return LimitCheck.CONCURRENCY
        wait_s = 0.0
        verdict = LimitCheck.WITHIN
        requests, bucket = share.requests, share.tokens
        if requests is not None:
            wait_s = requests.wait_s(1.0, now)
            if wait_s > 0.0:
                verdict = LimitCheck.REQUESTS
        if bucket is not None:
            longer_s = bucket.wait_s(float(tokens), now)
            if longer_s > wait_s:
                wait_s = longer_s
                verdict = LimitCheck.TOKENS
        if verdict != LimitCheck.WITHIN:
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
        return LimitCheck.WITHIN

    def _fill(self, now: float) -> None:
        """Refill the buckets that `ask` did not check, by the time since they were last filled."""
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
        """Release the limits of a request for which `taken` tokens were taken.

        `used`: the engine's count of tokens; None: unknown, so the estimate is kept. `output`: the
        request's output tokens.
        """
        if output is not None:
            self._expected.learn(output)
        if not is_batch:
            self._own.settle(taken, used, now)
        else:
            self.concurrency.entered -= 1
        self._all.settle(taken, used, now)
        self.under_way -= 1
        if not waits:
            self.concurrency.give(is_batch, now)

    def left(self, now: float) -> tuple[float | None, float | None]:
        """Return (requests, tokens) that are available to requests that are not batch.

        A negative number: more was used than the limit allows. None: the tenant has no such limit.
        """
        requests, tokens = self._own.requests, self._own.tokens
        return (
            None if requests is None else requests.level(now),
            None if tokens is None else tokens.level(now),
        )

    def header_lines(self, now: float) -> bytes:
        """Return the header lines with what is left of the limits per minute, as in OpenAI's API.

        Each line has a CRLF before it. b"": the tenant has no such limit.
        """
        requests, tokens = self._own.requests, self._own.tokens
        lines = b""
        if requests is not None:
            lines = _header_lines(b"requests", requests, now)
        if tokens is not None:
            lines += _header_lines(b"tokens", tokens, now)
        return lines


class Grant:
    """The part of its tenant's limits that one request holds.

    This part is released exactly once.
    """

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
        """Create a `Grant` after `account.ask` returned WITHIN for `taken` tokens.

        `taken_of_prompt`: the part of these tokens that is for the prompt.
        """
        self._is_batch = is_batch
        self._waits = waits
        self._account: Account | None = account
        self._taken = taken
        self.taken_of_prompt = taken_of_prompt

    def settle(self, used: int | None, output: int | None, now: float) -> None:
        """Release the limits at the end of the request; see `Account.settle`. Only the first call
        has an effect."""
        account, self._account = self._account, None
        if account is not None:
            account.settle(
                self._taken, used, output, now, is_batch=self._is_batch, waits=self._waits
            )


def _header_lines(what: bytes, bucket: Bucket, now: float) -> bytes:
    level = bucket.level(now)
    reset = f"{(bucket.size - level) * _MINUTE_S / bucket.size:.3f}s".encode()
    return (
        b"\r\nx-ratelimit-limit-%b: %d\r\nx-ratelimit-remaining-%b: %d\r\n"
        b"x-ratelimit-reset-%b: %b"
        % (what, int(bucket.size), what, max(0, int(level)), what, reset)
    )


def _adopted(
    bucket: Bucket | None, per_minute: float | None, now: float, parts: int
) -> Bucket | None:
    if per_minute is None:
        return None
    if bucket is None:
        return Bucket(per_minute, now, parts)
    if bucket.whole != per_minute:
        bucket.adopt(per_minute, now)
    return bucket
