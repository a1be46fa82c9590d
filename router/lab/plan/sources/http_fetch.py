"""Sends GET requests to a Prometheus server, with optional credentials.

Must never: send the credentials to another host (so redirects are refused), or print them.
"""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from typing import Any

from router.lab.plan.sources.prometheus_api import BODY_MAX, TIMEOUT_S, Fetch, PrometheusError


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def bearer(token: str) -> str:
    """Return the value of the header Authorization for a bearer token."""
    return f"Bearer {token}"


def basic(credentials: str) -> str:
    """Return the value of the header Authorization for `USER:PASSWORD`. Raises ValueError."""
    if ":" not in credentials:
        raise ValueError("the file of --basic-auth-file must contain USER:PASSWORD")
    return f"Basic {b64encode(credentials.encode()).decode('ascii')}"


def fetcher(authorization: str = "", ca_file: str | None = None) -> Fetch:
    """Return a function that returns the body of a URL. The function raises PrometheusError.

    `authorization`: the value of this header; `ca_file`: certificates that may sign the server's,
    instead of the system's. Raises OSError if this file cannot be read, and ValueError if it has no
    certificates.
    """
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    if ca_file is not None:
        handlers.append(urllib.request.HTTPSHandler(context=_context(ca_file)))
    opener = urllib.request.build_opener(*handlers)
    headers = {"Authorization": authorization} if authorization else {}

    def fetch(url: str) -> bytes:
        server = url.partition("?")[0]
        request = urllib.request.Request(url, headers=headers)
        try:
            with opener.open(request, timeout=TIMEOUT_S) as response:
                body: bytes = response.read(BODY_MAX + 1)
        except urllib.error.HTTPError as err:
            with err:
                body = err.read(BODY_MAX)
            if body[:1] != b"{":  # Prometheus explains a refusal in JSON
                raise PrometheusError(f"{server}: HTTP {err.code} {err.reason}") from None
        except (OSError, http.client.HTTPException) as err:
            reason = getattr(err, "reason", None) or err
            raise PrometheusError(f"{server}: cannot be reached: {reason}") from None
        if len(body) > BODY_MAX:
            raise PrometheusError(f"{server}: the answer is larger than {BODY_MAX >> 20} MiB")
        return body

    return fetch


def _context(ca_file: str) -> ssl.SSLContext:
    with open(ca_file, encoding="utf-8") as file:
        text = file.read()
    try:
        return ssl.create_default_context(cadata=text)
    except ssl.SSLError as err:
        raise ValueError(f"{ca_file}: not a file of certificates: {err.reason}") from None
