"""Declares the section `health`: probes, ejections and slow start of replicas."""

from __future__ import annotations

from typing import Annotated

import msgspec

from router.config.model.setting_types import Count, Frozen, Seconds, SecondsOrOff, Share


class Health(Frozen, frozen=True):
    """How the router decides which replicas to use. A replica that is down or ejected gets no
    requests. A suspect replica gets requests only if no other replica can.
    """

    interval_s: Seconds = 5.0  # Time between two health probes of a replica, with 20 % jitter.
    # Maximum time that one probe may take. A probe that takes longer fails, unless the replica
    # shows work for requests meanwhile.
    timeout_s: Seconds = 5.0
    rise: Count = 1  # A replica that is down is up after this many successful probes in a row.
    fall: Count = 3  # A replica that is up is down after this many failed probes in a row.
    path: str | None = None  # The path of the probe. Unset: /health, then /v1/models.
    eject_after: Count = 5  # A replica is ejected after this many failed requests in a row.
    # Duration of a replica's first ejection, with 20 % jitter. The duration doubles with each
    # further ejection.
    eject_base_s: Seconds = 10.0
    eject_max_s: Seconds = 300.0  # Maximum duration of an ejection.
    # Maximum share of a model's replicas that are ejected at once. One replica is never ejected.
    # Replicas that are on standby, asleep, cordoned or draining do not count.
    eject_share: Share = 0.5
    # If less than this share of a model's replicas is usable, ejected replicas that are up are used
    # as well. Counted as for `eject_share`; replicas that are down count.
    panic_share: Share = 0.2
    # A replica that came up gets more and more requests during this time, then its full share.
    slow_start_s: SecondsOrOff = 30.0
    # A replica becomes suspect if a first token, or a response that is not streamed, takes this
    # many times the usual time, and the replica shows no other progress meanwhile.
    suspect_factor: Annotated[float, msgspec.Meta(ge=1)] = 10.0
    # A replica does not become suspect before a first token has taken this time. The load in
    # metrics that do not change for this time (some engines: twice) counts as unknown.
    suspect_min_s: Seconds = 5.0
    # Time between two reads of /v1/models. A list is also read when its replica restarts or answers
    # 404 for a model of the list, and all lists are read when a request names an unknown model, at
    # most once in a sixth of this time.
    models_interval_s: Seconds = 30.0
    # A replica that has joined and is not up yet may serve any model. So for this time after it
    # joined, a request for a model that no replica lists gets 503 instead of 404.
    models_wait_s: Seconds = 1800.0
