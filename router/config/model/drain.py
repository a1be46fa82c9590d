"""Declares the section `drain`: how the process stops."""

from __future__ import annotations

from router.config.model.setting_types import Frozen, SecondsOrOff


class Drain(Frozen, frozen=True):
    """What happens between the signal SIGTERM or SIGUSR2 and the end of the process."""

    # During this time after SIGTERM, /readyz returns 503, but requests are still accepted, and
    # each response closes its connection. After SIGUSR2 a new process serves instead, at once.
    lame_duck_s: SecondsOrOff = 5.0
    # Then the process accepts no new connection. Requests in progress may finish within this time.
    grace_s: SecondsOrOff = 600.0
