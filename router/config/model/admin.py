"""Declares the section `admin`: the admin port, and its HTTPS."""

from __future__ import annotations

from typing import Annotated

from router.config.model.setting_types import Restart, TokenSource
from router.config.model.tls import Tls


class AdminTls(Tls, frozen=True):
    """HTTPS on the admin port. Turning it on or off needs a restart."""

    # A file with the PEM certificates of the authorities that sign the certificates of clients.
    # Unset: clients need no certificate.
    client_ca: str | None = None


class Admin(TokenSource, frozen=True):
    """The admin port: metrics, health, the fleet, reload and drain. Clients must not reach it.

    `admin` may also be only the address. If a token is set, it is needed for every request that
    changes something, and for `/metrics`, `/usage` and `/queue`, which name tenants. Admin requests
    send it as `Authorization: Bearer`.
    """

    # The address. If other machines can reach it, a token or `tls.client_ca` must be set.
    listen: Annotated[str, Restart] = "127.0.0.1:9901"
    # A second address for probes and scrapers. It has only `/livez`, `/readyz`, `/metrics`,
    # `/healthz` and `/health`, and needs no token. The metrics name tenants. Unset: there is no
    # second address.
    probes_listen: Annotated[str, Restart] | None = None
    tls: AdminTls | None = None
