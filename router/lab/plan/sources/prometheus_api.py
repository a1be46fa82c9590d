"""A client of the HTTP API of a Prometheus server: sends `query_range` and `query`, and decodes
answers, with the warnings of the server.

Format: https://prometheus.io/docs/prometheus/latest/querying/api/, API version 1. Values that are
not finite are dropped. Must never: depend on the meaning of a query.

`bearer`, `basic`, `fetcher`: sends GET requests to a Prometheus server, with optional credentials.

Must never: send the credentials to another host (so redirects are refused), or print them.
"""

from __future__ import annotations

import http.client
import math
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec

from router.core.unreadable import NOT_JSON

TIMEOUT_S: Final = 130.0  # Prometheus itself ends a query after 2 minutes, by default
BODY_MAX: Final = 256 << 20
POINTS_MAX: Final = 11_000  # maximum number of points per series that a server returns
_EXCERPT: Final = 200  # characters of an unexpected answer in an error

Fetch = Callable[[str], bytes]  # returns the body of a GET request to a URL; raises PrometheusError


class PrometheusError(RuntimeError):
    """The server could not be reached, refused the query, or gave an unexpected answer."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One series of an answer: its labels, and its samples as (time in s, value)."""

    labels: Mapping[str, str]
    samples: tuple[tuple[float, float], ...]

    @property
    def last(self) -> float:
        return self.samples[-1][1]


class _Item(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct, rename={"type": "resultType"}):
    type: str
    result: list[_Item]


class _Answer(msgspec.Struct, rename={"kind": "errorType"}):
    status: str
    kind: str = ""
    error: str = ""
    # For example, servers that join several Prometheus servers warn if one of them is missing.
    warnings: list[str] = []
    data: msgspec.Raw = msgspec.Raw(b"null")


class Prometheus:
    """A client of the server at `url`, such as http://prometheus:9090; a path prefix is allowed.

    `warnings`: the warnings of all answers, each text once.
    """

    def __init__(self, url: str, fetch: Fetch) -> None:
        """Raises ValueError if `url` is not a URL of a server, or contains credentials."""
        parts = urlsplit(url)
        if parts.username is not None:
            raise ValueError(
                "the URL contains a user name: give the credentials in a file (--basic-auth-file)"
            )
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise ValueError(f"{url!r} is not a URL such as http://prometheus:9090")
        self.warnings: dict[str, None] = {}
        self._url = url.rstrip("/")
        self._fetch = fetch

    def query_range(self, query: str, begin_s: float, end_s: float, step_s: float) -> list[Sampled]:
        """Return the samples of a query at `begin_s`, `begin_s + step_s`, ... up to `end_s`.

        Sends several requests if the server would refuse that many points at once. Raises
        PrometheusError.
        """
        by_labels: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
        at = begin_s
        while at <= end_s:
            until = min(end_s, at + (POINTS_MAX - 1) * step_s)
            for found in self._ask(
                "query_range", "matrix", query=query, start=at, end=until, step=step_s
            ):
                key = tuple(sorted(found.labels.items()))
                by_labels.setdefault(key, []).extend(found.samples)
            at = until + step_s
        return [Sampled(dict(key), tuple(samples)) for key, samples in by_labels.items()]

    def query(self, query: str, at_s: float) -> list[Sampled]:
        """Return the samples of a query at one time. Raises PrometheusError."""
        return self._ask("query", "vector", query=query, time=at_s)

    def _ask(self, what: str, kind: str, query: str, **more: float) -> list[Sampled]:
        words = urlencode({"query": query, **{name: f"{x:.3f}" for name, x in more.items()}})
        body = self._fetch(f"{self._url}/api/v1/{what}?{words}")
        found, warnings = parse(body, kind, f"{self._url}: {query}")
        self.warnings.update(dict.fromkeys(warnings))
        return found


def parse(body: bytes, kind: str, where: str) -> tuple[list[Sampled], list[str]]:
    """Return the series of an answer whose type must be `kind`, and the warnings.

    Raises PrometheusError.
    """
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except NOT_JSON:
        shown = ascii(body[:_EXCERPT].decode("utf-8", "replace"))
        raise PrometheusError(f"{where}: the answer is not that of Prometheus: {shown}") from None
    if answer.status != "success":
        raise PrometheusError(f"{where}: {answer.kind or answer.status}: {answer.error}")
    try:
        data = msgspec.json.decode(answer.data, type=_Data)
        if data.type != kind:
            raise PrometheusError(f"{where}: the result must be a {kind}, not a {data.type}")
        found = [Sampled(item.metric, _finite(item)) for item in data.result]
    except (*NOT_JSON, ValueError) as err:
        raise PrometheusError(f"{where}: the answer cannot be read: {err}") from None
    return [one for one in found if one.samples], answer.warnings


def _finite(item: _Item) -> tuple[tuple[float, float], ...]:
    pairs = item.values if item.value is None else [item.value]
    return tuple((at, x) for at, text in pairs if math.isfinite(x := float(text)))


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
