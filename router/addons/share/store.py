"""Carries the messages of `router/share` through a publish/subscribe channel of Redis or Valkey.

One task publishes, at most once per `share.interval`; one task reads. Neither is awaited by a
request. A server that is slow, frozen or away delays messages only: the next one has all that is
true by then. After `LOST_S` without a message, the other routers' loads are forgotten here, and
this router's loads there.

A server may send anything: the bytes of one answer are bounded (`parser.py`), and reading takes at
most half of the time.

Must never: delay a request, store anything at the server, or log its password or its texts, which
may repeat the password.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from router.addons.share.parser import BoundedParser
from router.addons.share.sharing import Sharing
from router.config.model import Sharing as Rules
from router.core.clock import monotonic
from router.dispatch.addon import Host
from router.share.messages import VERSION

ANSWER_S: Final = 1.0  # seconds until a server that does not answer counts as lost
PAUSE_S: Final = 0.5  # between two attempts to connect
TURN_S: Final = 0.005  # of reading messages, before the event loop has as much time for the rest


class StoreAddon(Sharing):
    """The messages of one router, through a server."""

    def __init__(self, host: Host, rules: Rules) -> None:
        super().__init__(host, rules)
        self._channel = f"{rules.fleet}:{VERSION}:told"

    def work(self) -> Sequence[Awaitable[None]]:
        return [self._always(work) for work in (self._publish, self._read)]

    async def _always(self, work: Callable[[Any], Awaitable[None]]) -> None:
        """Do this with a connection, and with a new one whenever it fails."""
        while True:
            client: Any = None
            try:
                client = connection(self._rules.url)
                await work(client)
            except Exception as err:  # A lying server must not end the task.
                self.lost(type(err).__name__)
            finally:
                await _closed(client)
            await asyncio.sleep(PAUSE_S)

    async def _publish(self, client: Any) -> None:
        while True:
            data = self.next_message(monotonic())
            if data is not None:
                await client.publish(self._channel, data)
            await asyncio.sleep(self._rules.interval_s)

    async def _read(self, client: Any) -> None:
        async with client.pubsub(ignore_subscribe_messages=True) as channel:
            await channel.subscribe(self._channel)
            self.began()
            turn_at = monotonic()
            while True:
                found = await channel.get_message(timeout=ANSWER_S)
                now = monotonic()
                if self.is_silent(now):
                    raise TimeoutError("own messages do not come back in time")
                if found is None:  # Nothing came, or the answer to the subscription.
                    continue
                self.hear(found["data"], now)
                heard_at = monotonic()
                if heard_at - turn_at > TURN_S:
                    await asyncio.sleep(max(TURN_S, heard_at - now))
                    turn_at = monotonic()


def connection(url: str) -> Any:
    """A client that tries once, for a limited time. Raises ValueError."""
    return redis.asyncio.from_url(
        url,
        socket_timeout=ANSWER_S,
        socket_connect_timeout=ANSWER_S,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        parser_class=BoundedParser,
    )


async def _closed(client: Any) -> None:
    try:
        if client is not None:
            await client.aclose()
    except Exception:  # The connection is lost anyway.
        pass
