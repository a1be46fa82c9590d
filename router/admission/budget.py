"""The budgets of a tenant: the tokens and the money that it may use in a day and in a month.

Days and months begin at midnight in UTC (`core/periods.py`). A request is charged when it ends, to
the day and the month of its end, with what it really used. A tenant that has used up a budget is
refused until the day or the month is over.

Requests that run at the same time cannot exceed a budget by much. Each running request holds the
amount that it is expected to use. While other requests run, a new request is admitted only if its
amount fits into what is neither used nor held. If no other request runs, a request is admitted as
long as anything is left. So a budget is exceeded by one request at most, plus the errors of the
expected amounts. The expected output of a request is the largest output of the tenant's recent
answers, and at most the request's own limit. So a large `max_tokens` holds no more than the tenant
uses, and many short answers do not hide a long one.

The used amount has two parts: the amount that the usage file had when it was last read, and the
amount that this process has not written to the file yet. So routers with the same file, such as
the old and the new process during a restart, share their budgets.

A few past days and months are remembered, so that a wall clock that jumps forth and back does not
clear a budget.

The functions are pure: the wall-clock time (seconds since 1970) is passed in. Must never: sleep, or
know a tenant's name.
"""

from __future__ import annotations

from math import inf
from typing import Final

from router.core.periods import day_of, month_of, seconds_to_next_day, seconds_to_next_month

WITHIN: Final = 0
SPENT: Final = 1  # A budget is used up.
HELD: Final = 2  # Running requests hold the rest of a budget.

_PERIODS: Final = 4  # The number of days, and of months, that are remembered.
# The largest recent output falls by this factor with each smaller answer: to a half in 34 answers.
_DECAY: Final = 0.98
_ASSUMED: Final = 1024.0  # The largest output before the first answers, in tokens.
_HELD_WAIT_S: Final = 1.0


class Period:
    """The amounts that a tenant used in one day or one month."""

    __slots__ = ("number", "own_cost", "own_tokens", "stored_cost", "stored_tokens")

    def __init__(self, number: int) -> None:
        self.number = number
        # The amounts in the usage file when it was last read.
        self.stored_tokens = 0.0
        self.stored_cost = 0.0
        # The amounts that this process counted and has not written to the file.
        self.own_tokens = 0.0
        self.own_cost = 0.0

    @property
    def tokens(self) -> float:
        return self.stored_tokens + self.own_tokens

    @property
    def cost(self) -> float:
        return self.stored_cost + self.own_cost

    def charge(self, tokens: float, cost: float) -> None:
        self.own_tokens += tokens
        self.own_cost += cost

    def settle(self, tokens: float, cost: float) -> None:
        """Note that this amount of the process's own was written to the usage file."""
        self.own_tokens -= tokens
        self.own_cost -= cost
        self.stored_tokens += tokens
        self.stored_cost += cost

    def store(self, tokens: float, cost: float) -> None:
        """Note the amounts in the usage file."""
        self.stored_tokens = tokens
        self.stored_cost = cost


class BudgetLimits:
    """The budgets of one tenant; infinity: no budget."""

    __slots__ = ("cost_per_day", "cost_per_month", "tokens_per_day", "tokens_per_month")

    def __init__(
        self,
        tokens_per_day: float | None = None,
        tokens_per_month: float | None = None,
        cost_per_day: float | None = None,
        cost_per_month: float | None = None,
    ) -> None:
        self.tokens_per_day = inf if tokens_per_day is None else tokens_per_day
        self.tokens_per_month = inf if tokens_per_month is None else tokens_per_month
        self.cost_per_day = inf if cost_per_day is None else cost_per_day
        self.cost_per_month = inf if cost_per_month is None else cost_per_month


class Spending:
    """What one tenant has used, what its running requests hold, and its budgets."""

    __slots__ = (
        "_day",
        "_days",
        "_month",
        "_months",
        "held_cost",
        "held_tokens",
        "holds",
        "limits",
        "output",
        "wait_s",
        "what",
    )

    def __init__(self) -> None:
        self.limits: BudgetLimits | None = None
        self.holds = 0  # Number of running requests that hold an amount.
        self.held_tokens = 0.0
        self.held_cost = 0.0
        self.output = _ASSUMED  # The largest output of recent answers, which decays.
        # After a refusal by `ask`: the seconds until a request is admitted, and the budget.
        self.wait_s = 0.0
        self.what = ""
        # The periods in the order of their creation.
        self._days: dict[int, Period] = {}
        self._months: dict[int, Period] = {}
        # The day and the month of the last call, so that few requests compute a calendar.
        self._day = self.day(0)
        self._month = self.month(month_of(0))

    def day(self, number: int) -> Period:
        return _period(self._days, number)

    def month(self, number: int) -> Period:
        return _period(self._months, number)

    def expected_output(self, most: int | None) -> int:
        """Return the output that a request holds. `most`: its own limit; None: no limit."""
        output = int(self.output)
        return output if most is None or most > output else most

    def ask(self, tokens: float, cost: float, wall: float) -> int:
        """Hold an expected amount for a request. Return WITHIN, SPENT or HELD.

        WITHIN must be followed by one call of `release`; `Hold` ensures this.
        """
        limits = self.limits
        if limits is not None:
            self._enter_day(day_of(wall))
            day, month = self._day, self._month
            if (
                day.tokens >= limits.tokens_per_day
                or day.cost >= limits.cost_per_day
                or month.tokens >= limits.tokens_per_month
                or month.cost >= limits.cost_per_month
            ):
                self._explain(limits, wall)
                return SPENT
            if self.holds:
                more, dearer = self.held_tokens + tokens, self.held_cost + cost
                if (
                    day.tokens + more > limits.tokens_per_day
                    or month.tokens + more > limits.tokens_per_month
                    or day.cost + dearer > limits.cost_per_day
                    or month.cost + dearer > limits.cost_per_month
                ):
                    self.wait_s = _HELD_WAIT_S
                    return HELD
        self.holds += 1
        self.held_tokens += tokens
        self.held_cost += cost
        return WITHIN

    def _enter_day(self, number: int) -> None:
        """Set the present day and month, if the day is another one than at the last call."""
        if number != self._day.number:
            self._day, self._month = self.day(number), self.month(month_of(number))

    def _explain(self, limits: BudgetLimits, wall: float) -> None:
        """Note which budget is used up, and the wait. The budget with the longest wait counts."""
        day, month = self._day, self._month
        if month.tokens >= limits.tokens_per_month:
            self.what = "tokens per month"
        elif month.cost >= limits.cost_per_month:
            self.what = "cost per month"
        else:
            is_tokens = day.tokens >= limits.tokens_per_day
            self.what = "tokens per day" if is_tokens else "cost per day"
            self.wait_s = seconds_to_next_day(wall)
            return
        self.wait_s = seconds_to_next_month(wall)

    def release(self, tokens: float, cost: float) -> None:
        """Release the amount that a request held."""
        self.holds -= 1
        self.held_tokens -= tokens
        self.held_cost -= cost
        if not self.holds:
            # Without running requests nothing is held; the sums may have rounding errors.
            self.held_tokens = self.held_cost = 0.0

    def charge(self, tokens: int, cost: float, output: int, wall: float) -> None:
        """Charge what a request used when it ended. `output`: its part of the tokens."""
        self._enter_day(day_of(wall))
        self._day.charge(tokens, cost)
        self._month.charge(tokens, cost)
        if output > 0:
            self.output = max(float(output), self.output * _DECAY)


class Hold:
    """The amount of a budget that one running request holds. It is released exactly once."""

    __slots__ = ("_cost", "_spending", "_tokens")

    def __init__(self, spending: Spending, tokens: float, cost: float) -> None:
        """Create a `Hold` after `spending.ask` returned WITHIN for these amounts."""
        self._spending: Spending | None = spending
        self._tokens = tokens
        self._cost = cost

    def release(self) -> None:
        """Release the amount. Only the first call has an effect."""
        spending, self._spending = self._spending, None
        if spending is not None:
            spending.release(self._tokens, self._cost)


def _period(periods: dict[int, Period], number: int) -> Period:
    found = periods.get(number)
    if found is None:
        if len(periods) >= _PERIODS:
            del periods[next(iter(periods))]
        found = periods[number] = Period(number)
    return found
