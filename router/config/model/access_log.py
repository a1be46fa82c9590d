"""Declares the section `access_log`: the log with one line for each request."""

from __future__ import annotations

from typing import Annotated

import msgspec

from router.config.model.setting_types import Bytes, Frozen, MiB, Seconds, Secret


class AccessLog(Frozen, frozen=True):
    """The access log, which has one line of JSON for each request."""

    path: str = "-"  # The file to which the log is written. "-": standard output. "": no log.
    flush_s: Seconds = 0.5  # Maximum time until a line is written.
    queue: Bytes = 4 * MiB  # If more bytes than this wait for a slow disk, lines are dropped.
    # Add the member `time`, the value of `ts` as text: 2026-11-28T13:05:00.125000Z.
    iso_time: bool = False
    # How many pairs of blocks at the beginning of a prompt are logged as hashes. `hedgerow replay`
    # needs the hashes.
    blocks: Annotated[int, msgspec.Meta(ge=0, le=4096)] = 64
    # Salt of the hashes in the log, and of the prompts' hashes: several routers with the policy
    # `chwbl` need the same salt. "": a new random salt at each start.
    salt: Secret = ""
