"""Declares the section `emulate`: the emulated engines of the flag `--emulate`."""

from __future__ import annotations

from typing import Annotated

import msgspec

from router.config.model.setting_types import Frozen


class Emulator(Frozen, frozen=True):
    """The fleet of the flag `--emulate N`: emulated engines in a separate process."""

    count: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0  # Number of emulated engines.
    model: str = "emulated"  # The model that the emulated engines serve.
