"""The router of a row: as shipped, except for the order of its queue."""

from __future__ import annotations

from bench.fleet.contestants import HedgerowWith
from bench.priority.orders import NONE, rules


class HedgerowQueueing(HedgerowWith):
    """Hedgerow as shipped, with one order."""

    order = NONE

    def config(self) -> dict[str, object]:
        settings = super().config()
        del settings["routing"]
        queue = rules(self.order)
        return {
            **settings,
            "queue": {"enabled": queue.enabled, "policy": queue.policy},
            "keys": {"names_users": True},  # tenants are users without a key
            "access_log": {"path": ""},
        }


def hedgerow(order: str) -> type[HedgerowQueueing]:
    return type(
        "Hedgerow",
        (HedgerowQueueing,),
        {"name": order, "order": order, "settings": f"as shipped, {order}"},
    )
