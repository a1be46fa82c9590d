"""What the admin port answers and does: for this process, and for the other workers if there are.

A change is made here first. If it is refused, the others are not asked. They get it in the same
order, so they have the same members; one that misses it gets the state when it is started again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from router.app import usage
from router.app.workers import combined, frames
from router.app.workers.siblings import CHANGE_S
from router.observe.admin.actions import Refused
from router.observe.events import log_event

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from router.app.members import Members
    from router.app.parts import Parts
    from router.app.workers.siblings import Siblings
    from router.observe.families.collector import Collector

T = TypeVar("T")


class Router(Protocol):
    """What one process knows and does by itself (`App`)."""

    siblings: Siblings | None
    parts: Parts
    members: Members
    collector: Collector

    def ready(self) -> tuple[bool, str]: ...

    def replicas(self) -> list[dict[str, Any]]: ...

    def hedging(self) -> dict[str, Any]: ...

    def queue(self) -> dict[str, Any]: ...

    def usage(self, first: int, last: int) -> Awaitable[dict[str, Any]]: ...

    def usage_csv(self, first: int, last: int) -> Awaitable[bytes]: ...

    def reload(self) -> Awaitable[str]: ...

    def drain(self) -> None: ...


class AdminAnswers:
    """The operations that the admin port calls (`AdminActions` and `MemberActions`)."""

    def __init__(self, app: Router) -> None:
        self._app = app
        members = app.members
        # What one process answers by itself, by the name under which the others ask for it.
        self._own: dict[str, Callable[..., Any]] = {
            "replicas": app.replicas,
            "hedging": app.hedging,
            "queue": app.queue,
            "usage": app.usage,
            "usage_csv": app.usage_csv,
            "metrics": lambda: combined.told(app.collector.collect()),
            "show": members.show,
            "add": members.add,
            "remove": members.remove,
            "set_duty": members.set_duty,
            "reclaim": members.reclaim,
            "reload": app.reload,
        }

    @property
    def members(self) -> AdminAnswers:
        return self

    async def own(self, what: str, args: Sequence[Any]) -> Any:
        """Return what this process alone answers. Raises KeyError, Refused, ConfigError."""
        found = self._own[what](*args)
        return await found if isawaitable(found) else found

    async def _all(self, combine: Callable[[Any], T], what: str, *args: Any) -> T:
        own: T = await self.own(what, args)
        others = await self._others(what, *args)
        return combine([own, *others]) if others else own

    async def _others(self, what: str, *args: Any) -> list[Any]:
        siblings = self._app.siblings
        return [] if siblings is None else await siblings.ask(what, *args)

    async def _change(self, what: str, *args: Any) -> Any:
        own = await self.own(what, args)
        siblings = self._app.siblings
        expected = 0 if siblings is None else siblings.others
        done = 0 if siblings is None else len(await siblings.ask(what, *args, limit_s=CHANGE_S))
        if done < expected:
            log_event(logging.ERROR, "workers differ", key=None, what=what, missing=expected - done)
        return own

    # -- reports ------------------------------------------------------------------------------

    def ready(self) -> tuple[bool, str]:
        return self._app.ready()

    async def replicas(self) -> list[dict[str, Any]]:
        return await self._all(combined.replicas, "replicas")

    async def hedging(self) -> Mapping[str, Any]:
        return await self._all(combined.hedging, "hedging")

    async def queue(self) -> Mapping[str, Any]:
        return await self._all(combined.queue, "queue")

    async def usage(self, first: int, last: int) -> Mapping[str, Any]:
        return await self._all(combined.usage, "usage", first, last)

    async def usage_csv(self, first: int, last: int) -> bytes:
        if usage.has_file(self._app.parts):
            stored: bytes = await self.own("usage_csv", (first, last))
            return stored
        return await self._all(combined.usage_csv, "usage_csv", first, last)

    async def metrics(self, own: Iterable[Metric]) -> Iterable[Metric]:
        siblings = self._app.siblings
        others = await self._others("metrics")
        if siblings is not None and len(others) < siblings.others:
            # Counters without those of a worker would look as if the program had started again.
            text = "a worker does not answer"
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "worker_silent", text)
        return combined.metrics(own, others) if others else own

    # -- changes ------------------------------------------------------------------------------

    async def show(self, replica_id: str) -> Mapping[str, Any]:
        return await self._all(combined.replica, "show", replica_id)

    async def add(self, entry: object) -> Any:
        return await self._change("add", entry)

    async def remove(self, replica_id: str) -> Any:
        return await self._change("remove", replica_id)

    async def set_duty(self, replica_id: str, action: str) -> Any:
        return await self._change("set_duty", replica_id, action)

    async def reclaim(self, replica_id: str, seconds: float | None) -> Any:
        return await self._change("reclaim", replica_id, seconds)

    async def reload(self) -> Any:
        return await self._change("reload")

    def drain(self) -> None:
        if self._app.siblings is None:
            self._app.drain()
        else:
            self._app.siblings.request(frames.Order(frames.STOP))
