"""Routers without replicas that share the limits of tenants, and a channel between them."""

from __future__ import annotations

from functools import cache

from router.admission.limits import Account, LimitCheck
from router.share.limits_told import SharedLimits
from router.share.messages import VERSION, Message, decoded, encoded
from router.share.order import OthersOrder
from router.share.others import Others
from router.share.own import WHOLE_S
from tests.fleet.helpers import Table

# Concurrent requests, requests per minute, tokens per minute.
Limits = tuple[int | None, float | None, float | None]


class Keys:
    """The tenants of one router; all have the same limits."""

    def __init__(self, limits: Limits, names: tuple[str, ...]) -> None:
        self.limits = limits
        self.names = names
        self.accounts: dict[str, Account] = {}
        self.used: dict[str, Account] | None = None
        self.parts = 1

    def account_of(self, name: str, now: float) -> Account | None:
        if name not in self.accounts and name in self.names:
            self.accounts[name] = Account(*self.limits, now)
            self.accounts[name].divide(self.parts, now)
        return self.accounts.get(name)

    def divide(self, parts: int, now: float) -> None:
        self.parts = parts
        for account in self.accounts.values():
            account.divide(parts, now)


@cache
def _no_replicas() -> Table:
    return Table()


def without_replicas(
    name: str, limits: SharedLimits | None = None, order: OthersOrder | None = None
) -> Others:
    """What a router without replicas hears. `limits`: `None`: no tenant has limits."""
    return Others(name, _no_replicas().fleet, limits or unlimited(), order)


def unlimited() -> SharedLimits:
    """The limits of a router whose tenants have none."""
    return SharedLimits(Keys((None, None, None), ()), lambda: None)


class Side:
    """One router."""

    def __init__(self, name: str, limits: Limits, names: tuple[str, ...] = ("acme",)) -> None:
        self.name = name
        self.keys = Keys(limits, names)
        self.woken = 0
        self.shared = SharedLimits(self.keys, self._wake)
        self.others = without_replicas(name, self.shared)
        self.number = 0
        self.whole_at = 0.0

    def _wake(self) -> None:
        self.woken += 1

    def account(self, now: float, name: str = "acme") -> Account:
        """The account of a tenant that sends a request."""
        account = self.keys.account_of(name, now)
        assert account is not None and self.keys.used is not None
        self.keys.used[name] = account
        return account

    def tell(self, now: float) -> Message:
        """The next message, as it comes out of the channel."""
        self.number += 1
        is_whole = now >= self.whole_at
        if is_whole:
            self.whole_at = now + WHOLE_S
        uses = self.shared.tell(self.number, is_whole, now)
        message = Message(VERSION, self.name, self.number, (), is_whole, (), uses=uses)
        assert decoded(encoded(message)) == message
        return message

    def hear(self, message: Message, now: float) -> None:
        self.others.hear(message, now)


class Fleet:
    """Routers that tell each other at once whenever `tell` is called."""

    def __init__(self, count: int, limits: Limits, now: float = 0.0) -> None:
        self.sides = [Side(f"router-{number}", limits) for number in range(count)]
        self.is_away = False
        self.tell(now)

    def tell(self, now: float) -> None:
        told = [side.tell(now) for side in self.sides]
        if not self.is_away:
            for message in told:
                for side in self.sides:
                    side.hear(message, now)
        for side in self.sides:
            side.others.expire(now)


class Spread:
    """The account of one tenant over several routers: each request comes to the next one."""

    def __init__(self, routers: int, limits: Limits) -> None:
        self._fleet = Fleet(routers, limits)
        self._turn = 0
        self.wait_s = 0.0

    def _next(self, now: float) -> Account:
        self._turn += 1
        sides = self._fleet.sides
        return sides[self._turn % len(sides)].account(now)

    @property
    def under_way(self) -> int:
        return sum(side.account(0.0).under_way for side in self._fleet.sides)

    def ask(self, tokens: int, now: float) -> LimitCheck:
        account = self._next(now)
        verdict = account.ask(tokens, now)
        self.wait_s = account.wait_s
        self._fleet.tell(now)
        return verdict

    def settle(self, taken: int, used: int | None, output: int | None, now: float) -> None:
        """End a request at a router that has one."""
        accounts = [side.account(now) for side in self._fleet.sides]
        account = next((each for each in accounts if each.under_way > 0), accounts[0])
        # Without a request, only the tokens are corrected.
        account.settle(taken, used, output, now, waits=account.under_way <= 0)
        self._fleet.tell(now)

    def adopt(
        self, concurrency: int | None, requests: float | None, tokens: float | None, now: float
    ) -> None:
        for side in self._fleet.sides:
            side.account(now).adopt(concurrency, requests, tokens, now)

    def reserved(self, prompt: int, most_output: int, answers: int) -> int:
        found = {
            side.account(0.0).reserved(prompt, most_output, answers) for side in self._fleet.sides
        }
        assert len(found) == 1
        return found.pop()

    def left(self, now: float) -> tuple[float | None, float | None]:
        return self._next(now).left(now)
