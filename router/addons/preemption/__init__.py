"""Sends running requests back to the queue, when more urgent requests wait for their capacity."""

from router.addons.preemption.preemption import Preemption as make_extra

__all__ = ["make_extra"]
