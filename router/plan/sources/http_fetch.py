"""Sends GET requests to a Prometheus server, with an optional bearer token.

Must never: send the token to another host (so redirects are refused), or print the token.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from typing import Any

from router.plan.sources.prometheus_api import BODY_MAX, TIMEOUT_S, Fetch, PrometheusError


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def fetcher(token: str | None) -> Fetch:
    """Return a function that returns the body of a URL. The function raises PrometheusError."""
    opener = urllib.request.build_opener(_NoRedirects)
    headers = {"Authorization": f"Bearer {token}"} if token else {}

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
