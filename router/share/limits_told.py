"""Applies the limits of each tenant once over all routers.

Each router tells for each tenant what it has granted in all, and how many requests it runs (`Use`).
A receiver takes the difference from the last value it heard from the tenant's local buckets. So a
bucket is the only place that has the sum, and a lost message is made good by the next one: a row is
told when it has changed, and with each whole message.

What the differences begin at:

1. The first row of a router that was not heard before is only a base: it was granted before.
2. A later row of a tenant begins at 0 if its generation shows that the sender has begun it since.
   A generation is the number of the sender's message in which the row began. The sender ends a row
   that is idle for `IDLE_S`, and begins at 0 again with a new generation.
3. A router that is silent for `LOST_S` runs no request any more. What it has granted stays granted.

A slot of the limit of running requests goes to the router with the oldest request that waits for
one, so each router also tells how long that request has waited. Otherwise a router with enough
requests of a tenant would use each slot that it has freed, and the others would get none.

The excess over a limit is at most what the other routers grant until their messages come: in one
interval plus the delay of a message, and longer after a loss. The level of the bucket is then
negative, so the excess is repaid, up to the amount of one minute.

A router hears its own messages, too. If it hears none at all for `LOST_S`, the channel is away, and
the router uses one part of each limit: the others that it heard last have the other parts. What is
granted from this part is not told, because the others lose nothing by it. The router uses whole
limits again `SETTLED_S` after the channel has come back, when all routers have told their running
requests. A router that hears only itself uses whole limits, because the others have left.

A tenant is named by the name of its key, which is no secret: it is in the access log and in the
metrics.

Must never: wait, or be called by a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Final, Protocol

from router.admission.limits import Account, Used
from router.share.heard import HeardUse, Router
from router.share.messages import LOST_S, MOST_USES, Use

MOST_TENANTS: Final = 4096  # rows of one router; further tenants are not told
IDLE_S: Final = 120.0  # seconds until a row without requests ends
SETTLED_S: Final = 2.0  # two whole messages
_NONE: Final = (0, 0, 0, 0)


class Tenants(Protocol):
    """The tenants of this router (`dispatch/tenants.py`)."""

    used: dict[str, Account] | None

    def account_of(self, name: str, now: float) -> Account | None: ...

    def divide(self, parts: int, now: float) -> None: ...


# What was granted, the running requests, those of class batch, those that wait, and since when.
_Told = tuple[Used, int, int, int, float]


class _Own:
    """One row of this router."""

    __slots__ = ("account", "changed_at", "generation", "told", "used")

    def __init__(self, account: Account, generation: int) -> None:
        self.account = account
        self.generation = generation
        self.changed_at = 0.0
        self.used = _NONE  # What is told, or will be with the next whole message.
        self.told: _Told | None = None


class SharedLimits:
    """The limits of one router's tenants, which it shares with the other routers."""

    def __init__(self, tenants: Tenants, wake: Callable[[], None]) -> None:
        """`wake`: sends the requests that a limit does not block any more."""
        self._tenants = tenants
        self._wake = wake
        self._used: dict[str, Account] = {}
        tenants.used = self._used
        self._own: dict[str, _Own] = {}
        self._turn = 0  # Unchanged rows that were told; all rows take turns.
        self._running: dict[str, tuple[int, int]] = {}  # At all others, by tenant; no zeros.
        # By tenant and router, without zeros: the requests that wait there, and since when.
        self._waiting: dict[str, dict[Router, tuple[int, float]]] = {}
        self.channel_at = -1.0  # The time of the last message of any router; below 0: none.
        self._back_at = -1.0  # The time since which the channel works again; below 0: always.
        self.parts = 1  # Of each limit, one of so many equal parts is used.

    # -- what this router tells -----------------------------------------------------------------

    def tell(self, number: int, is_whole: bool, now: float) -> tuple[Use, ...]:
        """Return the rows of the message `number`: those that have changed, or all (`is_whole`)."""
        rows = self._own
        changed: list[Use] = []
        same: list[str] = []
        ended: list[str] = []
        for name, account in self._used.items():
            row = rows.get(name)
            if row is None or row.account is not account:
                if row is None and len(rows) >= MOST_TENANTS:
                    account.set_used(_NONE)
                    ended.append(name)
                    continue
                row = rows[name] = _Own(account, number)
            if self.parts > 1:
                account.set_used(row.used)
            else:
                row.used = account.used
            limit = account.concurrency
            waiting, since = limit.blocked()
            if limit.free(False) > 0:  # They wait for a replica, not for the limit.
                waiting, since = 0, inf
            state = row.used, limit.own, limit.batch, waiting, since
            if state != row.told:
                row.changed_at = now
                if len(changed) < MOST_USES:
                    row.told = state
                    changed.append(_use(name, row.generation, state, now))
            elif now - row.changed_at > IDLE_S and not account.under_way:
                ended.append(name)
                account.set_used(_NONE)
            else:
                same.append(name)
        for name in ended:
            del self._used[name]
            rows.pop(name, None)
        if is_whole and same:
            first = self._turn % len(same)
            for name in (same[first:] + same[:first])[: MOST_USES - len(changed)]:
                row = rows[name]
                if row.told is not None:
                    changed.append(_use(name, row.generation, row.told, now))
                self._turn += 1
        if self._waiting:  # The oldest request here may be another one now.
            for name in self._waiting:
                self._apply(name, now)
            self._wake()
        return tuple(changed)

    # -- what it was told -------------------------------------------------------------------------

    def channel_works(self, now: float) -> None:
        """Note that a message came; it may be an own one."""
        if now - self.channel_at > LOST_S and self.parts > 1:
            self._back_at = now
        self.channel_at = now

    def hear(self, uses: tuple[Use, ...], router: Router, now: float) -> None:
        """Take over the rows of a router's message."""
        for use in uses:
            account = self._tenants.account_of(use.tenant, now)
            if account is not None:
                self._count(router, use, account, now)
        if uses:
            self._wake()

    def _count(self, router: Router, use: Use, account: Account, now: float) -> None:
        """Count one row of another router."""
        used = (use.requests, use.tokens, use.all_requests, use.all_tokens)
        rows = router.uses
        row = rows.pop(use.tenant, None)
        before = _NONE
        if row is None:
            if len(rows) >= 2 * MOST_TENANTS:  # The sender has ended the oldest one.
                oldest = next(iter(rows))
                self._run(oldest, rows.pop(oldest), 0, 0, now)
                self._wait(oldest, router, 0, now)
            row = HeardUse(use.generation, used)
            if use.generation <= router.first:
                before = used
        elif row.generation == use.generation:
            before = row.used
        row.generation, row.used = use.generation, used
        rows[use.tenant] = row
        if used != before:
            more = (
                used[0] - before[0],
                used[1] - before[1],
                used[2] - before[2],
                used[3] - before[3],
            )
            account.used_elsewhere(more, now)
        self._wait(use.tenant, router, use.waiting, now - use.waited_s)
        self._run(use.tenant, row, use.running, use.batch, now)

    def _wait(self, tenant: str, router: Router, waiting: int, since: float) -> None:
        """Note the requests that wait at another router, in place of those of its last message."""
        found = self._waiting.pop(tenant, {})
        found.pop(router, None)
        if waiting:
            found[router] = waiting, since
        if found:
            self._waiting[tenant] = found

    def _run(self, tenant: str, row: HeardUse, running: int, batch: int, now: float) -> None:
        """Count the requests that another router runs, in place of those of its last message."""
        own, of_batch = self._running.pop(tenant, (0, 0))
        own += running - row.running
        of_batch += batch - row.batch
        row.running, row.batch = running, batch
        if own or of_batch:
            self._running[tenant] = own, of_batch
        self._apply(tenant, now)

    def _apply(self, tenant: str, now: float) -> None:
        """Count the requests of a tenant at other routers here."""
        account = self._tenants.account_of(tenant, now)
        if account is None:
            return
        limit = account.concurrency
        own, of_batch = self._running.get(tenant, (0, 0))
        ahead = 0
        others = self._waiting.get(tenant)
        if others is not None:
            _, oldest = limit.blocked()
            for waiting, since in others.values():
                if since < oldest:
                    ahead += waiting
        limit.counts_elsewhere(own, of_batch, ahead, now)

    def expire(self, lost: list[Router], routers: Iterable[Router], now: float) -> None:
        """Forget the requests of the routers that are silent now (`lost`), and divide the limits
        while the channel is away. `routers`: all that are remembered."""
        is_less = bool(lost)
        for router in lost:
            for tenant, row in router.uses.items():
                self._wait(tenant, router, 0, now)
                self._run(tenant, row, 0, 0, now)
        if now - self.channel_at > LOST_S:
            if self.parts == 1:
                last = self.channel_at - LOST_S
                heard = [1 for router in routers if router.heard_at >= last]
                self._divide(1 + len(heard), now)
        elif self.parts > 1 and now - self._back_at > SETTLED_S:
            self._divide(1, now)
            is_less = True
        if is_less:
            self._wake()

    def _divide(self, parts: int, now: float) -> None:
        if parts != self.parts:
            if parts > 1:  # What was granted until now is told when the channel is back.
                for row in self._own.values():
                    row.used = row.account.used
            self.parts = parts
            self._tenants.divide(parts, now)


def _use(tenant: str, generation: int, told: _Told, now: float) -> Use:
    used, running, batch, waiting, since = told
    waited_s = max(0.0, now - since) if waiting else 0.0
    return Use(tenant, generation, *used, running, batch, waiting, waited_s)
