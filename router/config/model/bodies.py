"""Declares the section `bodies`: what the router accepts in the bodies of requests."""

from __future__ import annotations

from router.config.model.setting_types import Frozen


class Bodies(Frozen, frozen=True):
    """What the bodies of requests may contain."""

    # Members that clients may send although they choose where an engine reads or writes, such as
    # `kv_transfer_params`. A request with any other such member returns 400.
    allow: tuple[str, ...] = ()
