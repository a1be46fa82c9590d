"""Describes a failed TLS connection to a replica: the reason, the host, and what to set.

The `errno` of an `ssl.SSLError` is a number of OpenSSL, which `os.strerror` does not know.
"""

from __future__ import annotations

import ssl
from typing import Final

from router.fleet.replica import Replica

# OpenSSL's codes of failed verifications (X509_V_ERR_*).
_OTHER_NAME: Final = (62, 64)  # the host name, or the IP address, is not in the certificate
_TIMES: Final = (9, 10)  # not valid yet, or expired
# What to do, by a part of OpenSSL's reason.
_HINTS: Final = (
    ("WRONG_VERSION_NUMBER", "the port seems to serve plain HTTP: write http:// in its URL"),
    ("RECORD_LAYER_FAILURE", "the port seems to serve plain HTTP: write http:// in its URL"),
    ("PROTOCOL", "the router needs TLS 1.2 or later: enable it at the replica"),
    ("UNRECOGNIZED_NAME", "set {server_name} to the name that the replica serves"),
    ("ALERT", "the replica refuses the router: it may require a client certificate; none is sent"),
)


def ssl_error_of(err: BaseException) -> ssl.SSLError | None:
    """Return the TLS failure that caused an error of aiohttp; `None` if there is none."""
    # aiohttp's own errors derive from those of `ssl`, too, but have not their attributes.
    for cause in (getattr(err, "certificate_error", None), getattr(err, "os_error", None), err):
        if isinstance(cause, ssl.SSLError):
            return cause
    return None


def tls_failure(err: ssl.SSLError, replica: Replica) -> str:
    """Return the failure as text for people."""
    pool = replica.config.pool
    # A setting of the pool has precedence over that of `upstream`.
    where = f"pools.{pool}" if pool else "upstream"
    ca_file, server_name = f"{where}.ca_file", f"{where}.server_name"
    reason, hint = err.reason or str(err), ""
    if isinstance(err, ssl.SSLCertVerificationError):
        reason = err.verify_message.rstrip(".")
        if err.verify_code in _OTHER_NAME:
            hint = f"set {server_name} to a name in the certificate"
        elif err.verify_code in _TIMES:
            hint = "renew the certificate, or correct the clock of this host"
        else:
            hint = f"set {ca_file} to the certificates to trust"
    else:
        for part, text in _HINTS:
            if part in reason:
                hint = text.format(server_name=server_name)
                break
        reason = reason.replace("_", " ").lower()
    name = replica.pool.address.server_name
    return f"TLS with {name} failed: {reason}" + (f"; {hint}" if hint else "")
