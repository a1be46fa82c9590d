"""Declares the section `pools`: settings that several replicas share."""

from __future__ import annotations

from router.config.model.replicas import Credential
from router.config.model.setting_types import Frozen, Secret


class Pool(Frozen, frozen=True):
    """A pool: the replicas that name it in `replicas.pool`. `models` can send requests to it."""

    credential: Credential | None = None  # The secret for the replicas. Unset: `upstream.token`.
    headers: dict[str, Secret] = {}  # Header fields that are added to each request.
    # The replicas belong to a provider of another company. They get nothing about the client and no
    # `upstream` settings, and no metrics are read from them. `models` of each must be set, and its
    # region is in no list of allowed regions unless it is stated.
    external: bool = False
    # Ask for the token counts of streams (`stream_options.include_usage`; see `usage.inject`).
    # Unset: the engines that are known to support it are asked, and all external replicas.
    include_usage: bool | None = None
    # A PEM file with the certificates to trust. Unset: those of `upstream`, or those of the system
    # if the pool is external.
    ca_file: str | None = None
    # The server name for TLS. Unset: as for `ca_file`, else the URL's host.
    server_name: str | None = None
