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

    `admin` may also be only the address. If a token is set, all requests need it, except `/` and
    the probes `/livez`, `/readyz`, `/healthz` and `/health`. Admin requests send it as
    `Authorization: Bearer`. Replicas that the admin API adds get no credential of `upstream` or of
    a pool unless a token or `tls.client_ca` is set.
    """

    # The address. If other machines can reach it, a token or `tls.client_ca` must be set.
    listen: Annotated[str, Restart] = "127.0.0.1:9901"
    # A second address for probes and scrapers. It has only `/livez`, `/readyz`, `/metrics`,
    # `/healthz` and `/health`, and needs no token. The metrics name tenants. Unset: there is no
    # second address.
    probes_listen: Annotated[str, Restart] | None = None
    # More names in the field `Host` under which both ports answer requests without the token, such
    # as gpu-1.example.com or *.example.com. Addresses, names without a dot, names of Kubernetes
    # (.svc, .svc.cluster.local), .internal and the name of the machine need no entry. Any other
    # name returns 421, because a web page may have made it resolve to this port (DNS rebinding).
    hosts: tuple[str, ...] = ()
    tls: AdminTls | None = None
