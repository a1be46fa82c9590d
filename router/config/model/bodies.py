"""Declares the section `bodies`: what the router accepts in the bodies of requests."""

from __future__ import annotations

from router.config.model.setting_types import Frozen, SecondsOrOff


class Bodies(Frozen, frozen=True):
    """What the bodies of requests may contain."""

    # Members that clients may send although they choose where an engine reads or writes, such as
    # `kv_transfer_params`. A request with any other such member returns 400.
    allow: tuple[str, ...] = ()
    # How long a body is refused that was in flight at the deaths of two engine processes, unless a
    # replica answers it in between. The first death is remembered for the same time.
    suspect_s: SecondsOrOff = 300.0
