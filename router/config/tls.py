"""Makes TLS contexts and reads the bearer tokens, from the files that the configuration names.

`hedgerow check` and the start of the router call the same functions, so they report the same
errors. Every error is a ValueError, whose message is printed after the path of the setting. A
message never contains a secret or the content of a key.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable
from typing import Final

from router.config.model import AdminTls, Pool, Tls, Upstream
from router.config.model.setting_types import TokenSource
from router.config.problems import Problems
from router.config.read_file import read_file
from router.core.errors import ConfigError

_MAX_TOKEN_BYTES = 16 * 1024
# A valid name of a header field (RFC 9110), except that the underscore is not allowed.
FIELD_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^`|~-]{1,64}\Z")


class FileProblem(ValueError):
    """A file that the configuration names cannot be used. `field`: the setting with its name."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


def listening_context(tls: Tls) -> ssl.SSLContext:
    """Return the TLS context of the data port. Raises FileProblem."""
    _read("cert", tls.cert)
    _read("key", tls.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # If no password is given, OpenSSL asks for the password of an encrypted key on the terminal
        # and waits.
        context.load_cert_chain(tls.cert, tls.key, password=lambda: "")
    except ssl.SSLError as err:
        if err.reason == "KEY_VALUES_MISMATCH":
            raise FileProblem("key", "is not the key of tls.cert") from None
        raise FileProblem("cert", f"no usable PEM certificate and key ({err.reason})") from None
    except OSError as err:  # The files were replaced since they were read above.
        raise FileProblem("cert", f"cannot read the certificate or its key: {err}") from None
    return context


def admin_context(tls: AdminTls) -> ssl.SSLContext:
    """Return the TLS context of the admin port. Raises FileProblem."""
    context = listening_context(tls)
    if tls.client_ca is not None:
        _trust(context, "client_ca", tls.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class PortTls:
    """The TLS contexts of the data port and the admin port; `None`: without TLS. Never changes.

    Each new connection uses the contexts in force, so a reload replaces the certificates.
    """

    def __init__(self, tls: Tls | None, admin: AdminTls | None) -> None:
        """Reads the certificates and their keys. Raises ConfigError."""
        self.data = self.admin = None
        path = "tls"
        try:
            self.data = None if tls is None else listening_context(tls)
            path = "admin.tls"
            self.admin = None if admin is None else admin_context(admin)
        except FileProblem as err:
            raise ConfigError([f"{path}.{err.field}: {err}"]) from None


def pool_context(pool: Pool) -> ssl.SSLContext:
    """Return the TLS context for the https replicas of a pool with its own settings.

    Raises FileProblem.
    """
    return replica_context(Upstream(ca_file=pool.ca_file))


def replica_context(upstream: Upstream) -> ssl.SSLContext:
    """Return the TLS context for replicas with https URLs. Raises FileProblem."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if not upstream.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif upstream.ca_file is None:
        context.load_default_certs()
    else:
        _trust(context, "ca_file", upstream.ca_file)
    return context


def _trust(context: ssl.SSLContext, field: str, path: str) -> None:
    _read(field, path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as err:
        raise FileProblem(field, f"no usable PEM certificates ({err.reason})") from None
    except OSError as err:  # The file was replaced since it was read above.
        raise FileProblem(field, f"cannot read {path!r}: {err}") from None


def token_of(section: TokenSource) -> str | None:
    """Return the token of a section: from the configuration, a file or the environment.

    Raises FileProblem.
    """
    if section.token_env is not None:
        found = os.environ.get(section.token_env)
        if found is None:
            raise FileProblem("token_env", f"{section.token_env!r} is not in the environment")
        return _usable("token_env", found.strip())
    if section.token_file is not None:
        raw = _read("token_file", section.token_file)
        if len(raw) > _MAX_TOKEN_BYTES:
            raise FileProblem("token_file", "is too large to be a token")
        return _usable("token_file", raw.decode("latin-1").strip())
    if section.token is not None:
        return _usable("token", section.token)
    return None


def _usable(field: str, token: str) -> str:
    # A line break in a token would begin another header line at the replica.
    if not token or not all("!" <= char <= "~" for char in token):
        raise FileProblem(field, "a token is one word of visible ASCII characters")
    return token


def _read(field: str, path: str) -> bytes:
    try:
        return read_file(path, 1024 * 1024)
    except (OSError, ValueError) as err:  # ValueError if the path has a NUL byte
        why = err.strerror if isinstance(err, OSError) and err.strerror else str(err)
        raise FileProblem(field, f"cannot read {path!r}: {why}") from None


def try_files(section: str, action: Callable[[], object], problems: Problems) -> None:
    """Calls `action`, which reads files, and adds its FileProblem as a problem of `section`."""
    if not problems.reads_files:
        return
    try:
        action()
    except FileProblem as err:
        problems.add(f"{section}.{err.field}", str(err))


def check_token(
    path: str, section: TokenSource, problems: Problems, *, is_needed: bool = False
) -> None:
    """Checks the token of a section. `path`: the path of the section."""
    if problems.is_spoiled(path):
        return
    given = sum(s is not None for s in (section.token, section.token_file, section.token_env))
    if given > 1 or (is_needed and not given):
        rule = "needs" if is_needed else "may have only"
        problems.add(path, f"{rule} one of token, token_file and token_env")
    else:
        try_files(path, lambda: token_of(section), problems)
