"""Declares the section `upstream`: connections to replicas, and their token."""

from __future__ import annotations

from router.config.model.setting_types import TokenSource


class Upstream(TokenSource, frozen=True):
    """How the router connects to replicas.

    The token is sent to replicas as `Authorization: Bearer`, instead of the client's token.
    """

    # A PEM file with the certificates to trust. Unset: the certificates that the system trusts.
    ca_file: str | None = None
    verify: bool = True  # Verify the replicas' certificates.
    # The server name for TLS and for verifying the certificate. Unset: the URL's host.
    server_name: str | None = None
