"""The budgets and the usage file in the life of one router."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from router.addons.usage.budgets import Budgets
from router.addons.usage.kept_accounts import KeptAccounts, families
from router.addons.usage.pending import Pending
from router.config.model import Config
from router.core.time_zone import TimeZone
from router.dispatch.addon import Addon, Host
from router.observe.events import log_event
from router.observe.prices import prices_of

if TYPE_CHECKING:
    from router.addons.usage.writer import UsageWriter


class UsageAddon(Addon):
    """Created if there are API keys or `usage.file` is set."""

    def __init__(self, host: Host, config: Config) -> None:
        self.budgets = Budgets()
        self.pending = Pending()
        self.writer: UsageWriter | None = None  # `None`: `usage.file` is not set.
        if config.usage.file is not None:
            # Imported only if it is used, because it imports SQLite.
            from router.addons.usage.writer import UsageWriter

            self.writer = UsageWriter(config.usage, self.pending, self.budgets)
        self.families = families(self.budgets, self.writer)
        self._accounts = KeptAccounts(self.budgets, self.pending, self.writer, host.sweeper)
        self._dispatcher = host.dispatcher

    def held(self) -> dict[str, int]:
        return {"budget_holds": len(self.budgets.holds)}

    def adopt(self, config: Config) -> None:
        keys, zone = self._dispatcher.tenants.keyring, TimeZone(config.usage.time_zone)
        self.budgets.adopt(keys, prices_of(config), zone)
        self._accounts.cuts_spent = config.usage.cut_spent
        if self.writer is not None:
            self.writer.rules = config.usage
        self._dispatcher.completion.accounts = self._accounts

    async def start(self, *, waits: bool = False) -> None:
        if self.writer is not None:
            await self.writer.start()
        elif self.budgets.keys.budgets:
            log_event(logging.WARNING, "budgets begin anew at a restart without usage.file")

    async def reloaded(self) -> None:
        if self.writer is not None:
            await self.writer.flush()  # Reads the used amounts of new budgets.

    async def close(self) -> None:
        if self.writer is not None:
            await self.writer.stop()
