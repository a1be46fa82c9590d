"""Carries the messages of `router/share` between the workers of one machine, without a server.

The parent of the workers passes each message on to all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from router.addons.share.sharing import Sharing
from router.config.model import Sharing as Rules
from router.core.clock import monotonic
from router.dispatch.addon import Channel, Host


class WorkersAddon(Sharing):
    """The messages of one worker."""

    def __init__(self, host: Host, rules: Rules, siblings: Channel) -> None:
        super().__init__(host, rules)
        self._siblings = siblings

    def work(self) -> Sequence[Awaitable[None]]:
        self._siblings.on_told = self._hear
        return [self._tell()]

    async def stop(self) -> None:
        self._siblings.on_told = None
        await super().stop()

    def _hear(self, data: bytes) -> None:
        try:
            self.hear(data, monotonic())
        except Exception as err:
            self._host.failed(err)

    async def _tell(self) -> None:
        while True:
            now = monotonic()
            try:
                data = self.next_message(now)
            except Exception as err:
                data = None
                self._host.failed(err)
            if data is not None:
                self._siblings.tell(data)
            if self.is_silent(now):
                self.lost("the parent of the workers does not pass messages on")
            await asyncio.sleep(self._rules.interval_s)
