"""Declares the section `tls`: HTTPS on the data port."""

from __future__ import annotations

from router.config.model.setting_types import Frozen


class Tls(Frozen, frozen=True):
    """HTTPS on the data port. Turning it on or off needs a restart."""

    cert: str  # The PEM file with the certificate chain.
    key: str  # The PEM file with the private key.
