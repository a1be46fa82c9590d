"""The interface of the addon that keeps the budgets of keys and the usage file.

`Completion.accounts` is `None` while no setting needs the addon (`router/addons/usage`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from mypy_extensions import mypyc_attr

from router.dispatch.exchange import Exchange
from router.observe.tenant_usage import Used

# A day (days since 1970), a tenant, a priority class, and the usage.
Row = tuple[int, str, str, Used]


@mypyc_attr(allow_interpreted_subclasses=True)
class Accounts(ABC):
    """The amounts that the tenants of one router have used."""

    @abstractmethod
    def enter(self, x: Exchange, prompt: int, most: int, answers: int) -> None:
        """Check the budgets of a request's key, and hold what the request may use until `release`.

        `prompt`: its estimated tokens. `most`, `answers`: see `ExpectedOutput.of`. Raises
        RouterError (INSUFFICIENT_QUOTA, KEY_BUDGET_HELD), and then holds nothing.
        """

    @abstractmethod
    def release(self, x: Exchange) -> None:
        """Release what a request holds, because it has ended."""

    @abstractmethod
    def record(
        self,
        x: Exchange,
        prompt: int,
        cached: int,
        output: int,
        is_estimate: bool,
        cost: float,
        wall: float,
        now: float,
    ) -> None:
        """Charge a request that has ended. `cost`: below 0 if its model has no price."""

    @abstractmethod
    def budgets(self, tenant: str) -> dict[str, Any]:
        """Return the budgets of a tenant, as members of its object in GET /usage."""

    @abstractmethod
    async def totals(
        self, first: int, last: int
    ) -> tuple[float | None, dict[str, dict[str, Used]]] | None:
        """Return the usage in the file from day `first` to day `last`, by tenant and class.

        Before it is the beginning of the first day (seconds since 1970; `None`: the file has no
        such day). `None`: no file is configured. Raises OSError.
        """

    @abstractmethod
    async def rows(
        self, first: int, last: int, encode: Callable[[Iterable[Row]], bytes]
    ) -> bytes | None:
        """Return the encoded rows of the file; `None`: no file is configured. Raises OSError.

        `encode` is called in a thread.
        """
