"""The measured router: Hedgerow with one order of its queue."""

from __future__ import annotations

from bench.fleet.contestants import HedgerowWith
from bench.priority.orders import NONE, rules


class HedgerowQueueing(HedgerowWith):
    """Hedgerow with one order of its queue and otherwise default settings."""

    order = NONE

    def config(self) -> dict[str, object]:
        settings = super().config()
        del settings["routing"]
        queue = rules(self.order)
        return {
            **settings,
            "queue": {"enabled": queue.enabled, "policy": queue.policy},
            # A tenant is the user named by a request without an API key.
            "keys": {"names_users": True},
            "access_log": {"path": ""},
        }


def hedgerow(order: str) -> type[HedgerowQueueing]:
    return type(
        "Hedgerow",
        (HedgerowQueueing,),
        {"name": order, "order": order, "settings": f"as shipped, {order}"},
    )
