"""The budgets of a tenant: the tokens and the money that it may use in a day, a week and a month.

Days, weeks and months begin at midnight in the configured time zone. A request is charged when it
ends, to the periods of its end, with what it really used. A tenant that has used up a budget is
refused until the period is over.

Requests that run at the same time cannot exceed a budget by much. Each running request holds the
amount that it may use: its prompt, and the output of `expected_output.py`. While other requests
run, a new request is admitted only if its amount fits into what is neither used nor held. If no
other request runs, a request is admitted as long as anything is left. So a budget is exceeded by
one request at most, if all requests state their limit of output tokens. Without that limit, each
running request may use more than it holds. `usage.cut_spent` ends such requests.

The used amount has two parts: the amount that the usage file had when it was last read, and the
amount that this process has not written to the file yet. So routers with the same file, such as
the old and the new process during a restart, share their budgets.

A jump of the wall clock renews no budget. A few past periods are remembered, so a clock that jumps
forth and back finds the amounts that were used before. After a jump into another period, the amount
that this process has counted in the period before still counts, until that period would have ended
without the jump (`Window.carry`).

The functions are pure: the local time (`wall`, `core/time_zone.py`) and the monotonic time (`now`)
are passed in. Must never: sleep, or know a tenant's name.
"""

from __future__ import annotations

from math import inf
from typing import Final

from router.admission.expected_output import ExpectedOutput
from router.core.periods import DAY, MONTH, NAMES, WEEK, day_of, number_of, seconds_to_next

WITHIN: Final = 0
SPENT: Final = 1  # A budget is used up.
HELD: Final = 2  # Running requests hold the rest of a budget.

_PERIODS: Final = 4  # The number of days, of weeks and of months that are remembered.
_NO_DAY: Final = -(1 << 60)
_HELD_WAIT_S: Final = 1.0


class Period:
    """The amounts that a tenant used in one day, week or month."""

    __slots__ = (
        "counted_cost",
        "counted_tokens",
        "number",
        "own_cost",
        "own_tokens",
        "stored_cost",
        "stored_tokens",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        # The amounts in the usage file when it was last read.
        self.stored_tokens = 0.0
        self.stored_cost = 0.0
        # The amounts that this process counted and has not written to the file.
        self.own_tokens = 0.0
        self.own_cost = 0.0
        # All amounts that this process counted.
        self.counted_tokens = 0.0
        self.counted_cost = 0.0

    def charge(self, tokens: float, cost: float) -> None:
        self.own_tokens += tokens
        self.own_cost += cost
        self.counted_tokens += tokens
        self.counted_cost += cost

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


class Window:
    """The budgets of one tenant for periods of one length, and the amounts used in them."""

    __slots__ = ("_carried", "_current", "_periods", "cost_limit", "kind", "token_limit")

    def __init__(self, kind: int) -> None:
        self.kind = kind  # DAY, WEEK or MONTH
        # The budgets; infinity: no budget.
        self.token_limit = inf
        self.cost_limit = inf
        self._periods: dict[int, Period] = {}  # In the order of their creation.
        self._current = Period(_NO_DAY)
        # The periods before jumps of the clock that still count, and the monotonic times until
        # which they do.
        self._carried: dict[Period, float] = {}

    def period(self, day: int) -> Period:
        """Return the period to which a day belongs."""
        number = number_of(self.kind, day)
        found = self._periods.get(number)
        if found is None:
            if len(self._periods) >= _PERIODS:
                del self._periods[next(iter(self._periods))]
            found = self._periods[number] = Period(number)
        return found

    def enter(self, day: int) -> None:
        """Set the present day."""
        self._current = self.period(day)

    def carry(self, wall: float, before: float, now: float) -> None:
        """Go on counting the present period after a jump of the clock into another period, until
        the present period would have ended.

        `before`: the time without the jump.
        """
        current, kind = self._current, self.kind
        if number_of(kind, day_of(wall)) != current.number == number_of(kind, day_of(before)):
            if len(self._carried) >= _PERIODS:
                del self._carried[next(iter(self._carried))]
            self._carried[current] = now + seconds_to_next(kind, before)

    def charge(self, tokens: float, cost: float) -> None:
        self._current.charge(tokens, cost)

    def used(self, present: Period, now: float) -> tuple[float, float]:
        """Return the tokens and the cost that count in a period."""
        tokens = present.stored_tokens + present.own_tokens
        cost = present.stored_cost + present.own_cost
        for period, until in self._carried.items():
            if period is not present and now < until:
                tokens += period.counted_tokens
                cost += period.counted_cost
        return tokens, cost

    def spent(self, tokens: float, cost: float, now: float) -> str:
        """Return the unit of a budget that is used up if these amounts are added; "": none is."""
        used_tokens, used_cost = self.used(self._current, now)
        if used_tokens + tokens >= self.token_limit:
            return "tokens"
        return "cost" if used_cost + cost >= self.cost_limit else ""

    def fits(self, tokens: float, cost: float, now: float) -> bool:
        """Whether these amounts fit into what is not used."""
        used_tokens, used_cost = self.used(self._current, now)
        return used_tokens + tokens <= self.token_limit and used_cost + cost <= self.cost_limit


class Spending:
    """What one tenant has used, what its running requests hold, and its budgets."""

    __slots__ = (
        "_day",
        "expected",
        "held_cost",
        "held_tokens",
        "holds",
        "is_limited",
        "limits",
        "model",
        "wait_s",
        "what",
        "windows",
    )

    def __init__(self, model: str = "") -> None:
        """`model`: the model to which the budgets apply; "": all models."""
        self.model = model
        self.is_limited = False
        self.limits: tuple[tuple[float, float], ...] = ()  # As given to `limit`.
        self.holds = 0  # Number of running requests that hold an amount.
        self.held_tokens = 0.0
        self.held_cost = 0.0
        self.expected = ExpectedOutput()
        # After a refusal by `ask`: the seconds until a request is admitted, and the budget.
        self.wait_s = 0.0
        self.what = ""
        self.windows = (Window(DAY), Window(WEEK), Window(MONTH))
        self._day = _NO_DAY  # The day of the last call, so that few requests compute a calendar.

    @property
    def limits_cost(self) -> bool:
        return any(window.cost_limit < inf for window in self.windows)

    def limit(self, limits: tuple[tuple[float, float], ...]) -> None:
        """Set the budgets of tokens and of money for each window; infinity, or empty: no budget."""
        self.limits = limits
        self.is_limited = len(limits) > 0
        for window in self.windows:
            window.token_limit = window.cost_limit = inf
        for window, (tokens, cost) in zip(self.windows, limits, strict=False):
            window.token_limit, window.cost_limit = tokens, cost

    def enter(self, wall: float) -> None:
        """Set the present day, week and month, if the day is another one than at the last call."""
        day = day_of(wall)
        if day != self._day:
            self._day = day
            for window in self.windows:
                window.enter(day)

    def carry(self, wall: float, before: float, now: float) -> None:
        """Note that the clock has jumped. `before`: the time without the jump."""
        for window in self.windows:
            window.carry(wall, before, now)

    def ask(self, tokens: float, cost: float, wall: float, now: float) -> int:
        """Hold an expected amount for a request. Return WITHIN, SPENT or HELD.

        WITHIN must be followed by one call of `release`.
        """
        if self.is_limited:
            self.enter(wall)
            if self.is_spent(0.0, 0.0, wall, now):
                return SPENT
            if self.holds:
                more, dearer = self.held_tokens + tokens, self.held_cost + cost
                for window in self.windows:
                    if not window.fits(more, dearer, now):
                        self.wait_s = _HELD_WAIT_S
                        return HELD
        self.holds += 1
        self.held_tokens += tokens
        self.held_cost += cost
        return WITHIN

    def is_spent(self, tokens: float, cost: float, wall: float, now: float) -> bool:
        """Whether a budget is used up if these amounts are added.

        If so, `what` is the budget and `wait_s` the wait. The budget with the longest wait counts.
        """
        self.wait_s = 0.0
        for window in self.windows:
            unit = window.spent(tokens, cost, now)
            if unit:
                wait_s = seconds_to_next(window.kind, wall)
                if wait_s >= self.wait_s:
                    self.wait_s, self.what = wait_s, f"{unit} per {NAMES[window.kind]}"
                    if self.model:
                        self.what += f" for the model {self.model}"
        return self.wait_s > 0.0

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
        self.enter(wall)
        for window in self.windows:
            window.charge(tokens, cost)
        self.expected.learn(output)
