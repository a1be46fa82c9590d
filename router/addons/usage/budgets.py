"""Checks the budget of a request's key, and charges the tenant when the request has ended.

There is one `Spending` for each name of a key that was used, so a budget that a reload adds counts
what its tenant used before. A budget for a single model counts only from the reload that adds it.
A key is charged what GET /usage counts for it.

After a jump of the wall clock, the amounts of the new day are read from the usage file. Until then,
requests with a budget are refused, because these amounts are not known.

Must never: answer a client, or charge a request twice.

`WallClock`: notices jumps of the wall clock, by comparing it with the monotonic clock.

A wall clock is wrong after a boot without a battery-backed clock, until NTP corrects it. A budget
must not be granted again because of such a jump.

Pure: both times are passed in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from math import ceil
from typing import Final

from router.addons.usage.spending import HELD, WITHIN, Spending
from router.core.errors import Reason, RouterError
from router.core.periods import day_of
from router.core.time_zone import TimeZone
from router.dispatch.driver.request_end import class_of
from router.dispatch.exchange import Exchange
from router.dispatch.usage.usage_estimate import usage_at_end
from router.intake.keys import Key, Keyring, budget_of_model
from router.observe.events import log_event
from router.observe.prices import Prices

# A smaller change is the usual correction of a clock.
JUMP_S: Final = 60.0


class WallClock:
    """The difference between the wall clock and the monotonic clock, as it was last seen."""

    __slots__ = ("_offset", "jumped_s")

    def __init__(self) -> None:
        self._offset = 0.0  # 0: not seen yet.
        self.jumped_s = 0.0  # The length of the last jump; below 0: backwards.

    def has_jumped(self, wall: float, now: float) -> bool:
        """Whether the wall clock has jumped since the last call. `now`: monotonic seconds."""
        offset, before = wall - now, self._offset
        self._offset = offset
        if not before or abs(offset - before) < JUMP_S:
            return False
        self.jumped_s = offset - before
        return True


_HELD: Final = "running requests hold the rest of this key's budget; try again when one has ended"
_UNKNOWN: Final = "the clock has changed, and this key's budget is read again; try again"


# What one request holds of the budgets of its key: tokens and cost, by budget.
Held = list[tuple[Spending, float, float]]


class Budgets:
    """The budgets of all tenants of one router."""

    def __init__(self) -> None:
        self._clock = WallClock()
        self.zone = TimeZone()  # The days of budgets begin by its time.
        self._prices = Prices({})
        self.by_tenant: dict[str, Spending] = {}
        self.holds: dict[Exchange, Held] = {}  # By running request; without keys without budgets.
        self.keys = Keyring()
        # Starts reading the usage file; sets `awaits_file` to False at the end. `None`: no file.
        self.read_file: Callable[[], None] | None = None
        self.awaits_file = False  # Whether the used amounts of the present day are not known.
        self.unpriced = 0  # Requests of keys with a budget of money whose model has no price.

    def adopt(self, keys: Keyring, prices: Prices, zone: TimeZone) -> None:
        """Apply new prices, and the budgets of `keys`. Used amounts stay counted."""
        self._prices = prices
        self.zone = zone
        self.keys = keys
        for name, spending in self.by_tenant.items():
            limits = keys.budgets.get(name, ())
            if spending.limits != limits:
                spending.limit(limits)

    def enter(self, x: Exchange, prompt: int, most: int, answers: int) -> None:
        """See `Accounts.enter`."""
        asked = x.asked
        key = asked.key
        if key is None or not (key.budgets or key.model_budgets):
            return
        wall, now = asked.arrived_wall(x.arrived), x.arrived
        self._see(wall, now)
        if self.awaits_file:
            raise RouterError(Reason.KEY_BUDGET_HELD, _UNKNOWN, retry_after_s=1)
        view, ratio = x.view, x.context.fleet.knowledge.ratio
        prompt += ratio.doubt(asked.flow.account, view.model, view.prompt_bytes)
        held: Held = []
        for tenant in self._tenants_of(x, key):
            spending = self.of(tenant)
            output = spending.expected.of(most, answers)
            tokens, cost = float(prompt + output), self._cost(x, prompt, 0, output)
            verdict = spending.ask(tokens, cost, self.zone.local(wall), now)
            if verdict != WITHIN:
                _release(held)
                if verdict == HELD:
                    raise RouterError(Reason.KEY_BUDGET_HELD, _HELD, retry_after_s=_wait(spending))
                raise self._refusal(spending)
            held.append((spending, tokens, cost))
        self.holds[x] = held

    def release(self, x: Exchange) -> None:
        """Release what a request holds. Only the first call has an effect."""
        _release(self.holds.pop(x, ()))

    def _tenants_of(self, x: Exchange, key: Key) -> list[str]:
        """Return the names under which a request is charged: its key's, and its model's."""
        if key.model_budgets:
            model = x.priced_model()
            if model is not None and model in key.model_budgets:
                return [key.name, budget_of_model(key.name, model)]
        return [key.name]

    def _cost(self, x: Exchange, prompt: int, cached: int, output: int) -> float:
        model, urgency = x.priced_model(), class_of(x)
        return max(0.0, self._prices.cost_of(model, urgency, prompt, cached, output))

    def charge(
        self,
        x: Exchange,
        key: Key,
        tokens: int,
        cost: float,
        output: int,
        wall: float,
        now: float,
    ) -> list[str]:
        """Charge what a request used. Return the names under which it was charged: its key's first.

        `tokens` includes `output`. `cost`: below 0 if the model has no price.
        """
        tenants = self._tenants_of(x, key)
        if key.budgets or key.model_budgets:
            self._see(wall, now)
        for tenant in tenants:
            spending = self.of(tenant)
            if cost < 0.0 and tokens and spending.limits_cost:
                self._note_unpriced(tenant, x.priced_model())
            spending.charge(tokens, max(0.0, cost), output, self.zone.local(wall))
        return tenants

    def _note_unpriced(self, tenant: str, model: str | None) -> None:
        self.unpriced += 1
        log_event(
            logging.WARNING,
            "a key with a budget of money uses a model without a price",
            key=f"{tenant} {model}",
            tenant=tenant,
            model=model,
            remedy="set usage.prices of this model, or of '*'",
        )

    def _see(self, wall: float, now: float) -> None:
        """Notice a jump of the wall clock. `now`: the monotonic time."""
        if not self._clock.has_jumped(wall, now):
            return
        jumped_s = self._clock.jumped_s
        for spending in self.by_tenant.values():
            spending.carry(self.zone.local(wall), self.zone.local(wall - jumped_s), now)
        if self.read_file is not None:
            self.awaits_file = True
            self.read_file()
        log_event(logging.WARNING, "the wall clock has jumped", key=None, seconds=round(jumped_s))

    def overspent(self, wall: float, now: float) -> list[tuple[Exchange, RouterError]]:
        """Return the running requests of keys whose budget is used up, each with its refusal.

        The tokens that running requests have used so far count.
        """
        self._see(wall, now)
        local = self.zone.local(wall)
        running: dict[Spending, list[Exchange]] = {}
        for x, held in self.holds.items():
            for spending, _, _ in held:
                running.setdefault(spending, []).append(x)
        found: list[tuple[Exchange, RouterError]] = []
        for spending, of_key in running.items():
            tokens, cost = 0, 0.0
            for x in of_key:
                if x.reply.is_work:
                    asked, ratio = x.asked, x.context.fleet.knowledge.ratio
                    usage = usage_at_end(x.work, x.reply, asked, x.view, ratio, is_whole=False)
                    prompt, output = usage.prompt_tokens, usage.output_tokens or 0
                    if prompt is None:
                        prompt = asked.prompt_tokens(x.view.prompt_tokens)
                    tokens += prompt + output
                    cost += self._cost(x, prompt, usage.cached_tokens or 0, output)
            spending.enter(local)
            if spending.is_spent(float(tokens), cost, local, now):
                found += [(x, self._refusal(spending)) for x in of_key]
        return found

    def _refusal(self, spending: Spending) -> RouterError:
        words = (
            f"this key has used up its budget ({spending.what}, which renews in {self.zone.name})"
        )
        return RouterError(Reason.INSUFFICIENT_QUOTA, words, retry_after_s=_wait(spending))

    def day(self, wall: float) -> int:
        """Return the day to which the usage of a request belongs that ends now."""
        return day_of(self.zone.local(wall))

    def of(self, tenant: str) -> Spending:
        """Return the amounts of a key's name, or of a name of `budget_of_model`."""
        found = self.by_tenant.get(tenant)
        if found is None:
            found = self.by_tenant[tenant] = Spending(tenant.partition(" (")[2][:-1])
            found.limit(self.keys.budgets.get(tenant, ()))
        return found


def _release(held: Iterable[tuple[Spending, float, float]]) -> None:
    for spending, tokens, cost in held:
        spending.release(tokens, cost)


def _wait(spending: Spending) -> int:
    return max(1, ceil(spending.wait_s))
