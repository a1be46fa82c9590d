"""Reserves shares of the token capacity of a model pool for priority classes."""

from router.addons.reservations.reservations import Reservations as make_extra

__all__ = ["make_extra"]
