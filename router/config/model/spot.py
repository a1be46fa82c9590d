"""Declares the section `spot`: notices that spot machines are reclaimed."""

from __future__ import annotations

from typing import Literal

from router.config.model.setting_types import Frozen, Seconds, SecondsOrOff


class SpotMetadata(Frozen, frozen=True):
    """A metadata service that announces that its machine is reclaimed.

    Without `replica` and `node`, its notices apply to all spot replicas, because the router runs on
    their machine.
    """

    provider: Literal["aws", "gcp", "azure"]  # The cloud; it determines the paths and formats.
    url: str  # The address of the service, such as http://169.254.169.254.
    replica: str = ""  # The ID of the replica that is reclaimed.
    node: str = ""  # The `node` of the replicas that are reclaimed.
    machine: str = ""  # For azure: the name of the machine in events. "": any machine.


class Spot(Frozen, frozen=True):
    """How the router learns that a spot machine is reclaimed.

    The replicas of the machine get no new requests, and requests that would not end in time are
    moved to other replicas.
    """

    # A file that announces a reclaim when it appears. An empty file means all spot replicas. JSON
    # such as {"replicas": ["gpu-1:8000"], "seconds": 30} names replicas; `node` names a machine.
    # Deleting the file ends no reclaim; POST /replicas/ID/uncordon does. Unset: no file is read.
    notice_file: str | None = None
    metadata: tuple[SpotMetadata, ...] = ()  # The metadata services that the router queries.
    interval_s: Seconds = 1.0  # The time between two queries of each source.
    timeout_s: Seconds = (
        2.0  # Maximum time of one query of a metadata service, or read of the file.
    )
    notice_s: Seconds = 30.0  # Time until the machine goes away, if not stated.
    margin_s: SecondsOrOff = 2.0  # Requests should end this long before the machine goes away.
