"""Declares the section `timeouts`: how long each step of a request may take."""

from __future__ import annotations

from typing import Annotated

import msgspec

from router.config.model.setting_types import Frozen, Seconds, SecondsOrOff


class Timeouts(Frozen, frozen=True):
    """How long each step of a request may take."""

    head_s: Seconds = 10.0  # From a request's first byte to the end of its head.
    body_idle_s: Seconds = 30.0  # Maximum time between two pieces of a request body.
    # Minimum rate of a request body in bytes per second. A slower request is refused. 0: no
    # minimum.
    body_rate: Annotated[float, msgspec.Meta(ge=0)] = 1024.0
    body_rate_over_s: Seconds = 30.0  # The time over which `body_rate` is measured.
    # How long the rest of a refused request is read and discarded, so that the client can read the
    # error response. This ends a sixth of the time after the last bytes.
    refused_body_s: Seconds = 30.0
    keep_alive_s: Seconds = 75.0  # An idle client connection is closed after this time.
    connect_s: Seconds = 2.0  # Maximum time to open a connection to a replica.
    # Maximum time from sending a request to a replica until the first content of its stream.
    first_token_s: Seconds = 300.0
    # Maximum time from sending a request to a replica until the end of its response, if the
    # response is not a stream.
    whole_s: Seconds = 1800.0
    # Maximum time between two pieces of a response. It counts from the replica's last sign of work,
    # and a working replica may be silent for as long as `whole`.
    token_gap_s: Seconds = 60.0
    # Maximum time of a request from its arrival to the end of its response. 0: no limit.
    total_s: SecondsOrOff = 0.0
    write_stall_s: Seconds = 60.0  # A client that reads nothing for this time is disconnected.
    # An idle connection to a replica is closed after this time. It must be below the keep-alive
    # timeout of the replica (uvicorn: 5 s).
    pool_idle_s: Seconds = 3.0
    pool_age_s: Seconds = 600.0  # Maximum age of a connection to a replica, with 20 % jitter.
    # After this time without content, the router sends status 200 and then comments to the client
    # of a stream, so that the client does not give up. A stream that is silent for this time later
    # gets comments, too. 0: never.
    commit_after_s: SecondsOrOff = 10.0
