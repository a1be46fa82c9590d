"""Asks the API server of Kubernetes, with the official client. Import only if Kubernetes is used.

The asyncio part of the client (`kubernetes.aio`) is used, so a watch needs no thread, and stopping
a watch does not wait for a thread. The client reads the configuration, the certificates and the
tokens, and sends the requests. Two parts of it are not used:

- The classes of the single APIs need 0.9 s of CPU and 26 MB to be imported (kubernetes 37).
- `Watch` connects again without a pause, and does not limit the size of an event.

Must never: put a token into the text of an error.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client import ApiClient, Configuration

from router.addons.kubernetes.objects import ApiFailed, Invalid, Page, Status, decoded
from router.config.model import KubernetesReplicas
from router.core.build import VERSION
from router.core.clock import monotonic

_PAGE: Final = 50  # Objects per page, so that a page is decoded within some milliseconds.
_PAGE_BYTES: Final = 16 << 20
# etcd stores objects of up to 1.5 MiB (--max-request-bytes). In JSON they are somewhat larger.
_LINE_BYTES: Final = 8 << 20
_LINES: Final = 64  # Maximum number of events after which their result is applied.
_ERROR_BYTES: Final = 64 << 10
_REASON_CHARS: Final = 200  # Maximum length of the server's text in the text of an error.
# After this time, the kernel asks a silent server whether it is alive; then once per interval.
_KEEPALIVE: Final = (
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 20),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
)
_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_UNLIMITED: Final = aiohttp.ClientTimeout()  # This module has its own time limits.
# What a request, or reading its response, raises. ConfigException: the token cannot be read.
_ERRORS: Final = (
    *(aiohttp.ClientError, aiohttp.http.HttpProcessingError, kubernetes_config.ConfigException),
    *(OSError, EOFError, ValueError),
)

logging.getLogger("kubernetes").addHandler(logging.NullHandler())  # Errors are raised as well.


class KubernetesClient:
    """The API server of one source."""

    def __init__(
        self, api: ApiClient, source: KubernetesReplicas, namespace: str, timeout_s: float
    ) -> None:
        """`timeout_s`: maximum time of a list's page, and until a watch has begun."""
        self._api = api
        self._timeout_s = timeout_s
        if source.service:
            self._path = "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
            self._selector = f"kubernetes.io/service-name={source.service}"
        else:
            self._path = "/api/v1/namespaces/{namespace}/pods"
            self._selector = source.pods
        self._namespace = namespace

    @classmethod
    async def connect(cls, source: KubernetesReplicas, timeout_s: float) -> KubernetesClient:
        """Read the configuration and the credentials. No request is sent yet. Raises ApiFailed."""
        try:
            async with asyncio.timeout(timeout_s):
                configuration, namespace = await asyncio.to_thread(_configured, source)
                # Reads certificates.
                api = await asyncio.to_thread(ApiClient, configuration)
        except Exception as err:  # For a kubeconfig, the client raises errors of any class.
            raise ApiFailed(f"cannot be configured: {str(err) or type(err).__name__}") from None
        api.user_agent = f"hedgerow/{VERSION}"
        return cls(api, source, namespace, timeout_s)

    async def page(self, continues: str) -> Page:
        """Return one page of the list of all objects. Raises ApiFailed.

        `continues`: `continue` of the page before; "" for the first page.
        """
        query = [("limit", _PAGE), *([("continue", continues)] if continues else [])]
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._get(query)
                try:
                    raw = await _read(response, _PAGE_BYTES)
                finally:
                    response.close()
            page: Page = decoded(Page, raw)
        except Invalid as err:
            raise ApiFailed(f"an invalid list: {err}") from None
        except _ERRORS as err:
            raise self._failed(err) from None
        return page

    async def watch(self, version: str, seconds: int) -> Watch:
        """Start a watch of the changes after `version`. Raises ApiFailed.

        `seconds`: the time after which the server ends the watch.
        """
        query = [
            *(("watch", "true"), ("resourceVersion", version), ("allowWatchBookmarks", "true")),
            ("timeoutSeconds", seconds),
        ]
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._get(query)
        except _ERRORS as err:
            raise self._failed(err) from None
        return Watch(response, monotonic() + seconds + self._timeout_s)

    async def close(self) -> None:
        await self._api.close()

    async def _get(self, query: list[tuple[str, Any]]) -> aiohttp.ClientResponse:
        """Send one request. Returns a response of status 200.

        Raises ApiFailed for another status, and _ERRORS.
        """
        method, url, headers, *_ = await self._api.param_serialize(
            "GET",
            self._path,
            {"namespace": self._namespace},
            [("labelSelector", self._selector), *query],
            {"Accept": "application/json", "Accept-Encoding": "identity"},
            auth_settings=["BearerToken"],
        )
        answer = await self._api.call_api(method, url, headers, _request_timeout=_UNLIMITED)
        response: aiohttp.ClientResponse = answer.response
        if response.status == 200:
            return response
        try:
            status: Status = decoded(Status, await _read(response, _ERROR_BYTES))
            reason = status.message[:_REASON_CHARS]
        except (*_ERRORS, Invalid):
            reason = ""
        finally:
            response.close()
        token = str(self._api.configuration.api_key.get("BearerToken", "")).rpartition(" ")[2]
        if not reason.isprintable() or (token and token in reason):
            reason = ""
        raise ApiFailed(f"{response.status} {reason or response.reason}".strip(), response.status)

    def _failed(self, err: Exception) -> ApiFailed:
        if isinstance(err, TimeoutError):
            return ApiFailed(f"no answer within {self._timeout_s:g} s")
        return ApiFailed(str(err) or type(err).__name__)


class Watch:
    """A response whose lines are the events of a watch."""

    def __init__(self, response: aiohttp.ClientResponse, ends_at: float) -> None:
        """`ends_at`: monotonic seconds; a server that has not ended the watch then is silent."""
        self._response = response
        self._ends_at = ends_at
        self._lines: deque[bytes] = deque()
        self._rest = bytearray()  # The beginning of a line whose end has not arrived.
        _keep_alive(response)

    async def lines(self, timeout_s: float) -> list[bytes] | None:
        """Return some lines; if there are none, wait at most this time.

        Returns `None` at the end of the watch. A line without an end is not returned. Raises
        ApiFailed.
        """
        if not self._lines:
            try:
                async with asyncio.timeout(timeout_s):
                    data = await self._response.content.readany()
            except TimeoutError:
                return None if monotonic() > self._ends_at else []
            except _ERRORS:
                return None  # As if the server had ended the watch: it is continued.
            if not data:
                return None
            self._add(data)
        return [self._lines.popleft() for _ in range(min(_LINES, len(self._lines)))]

    def _add(self, data: bytes) -> None:
        first, *others = data.split(b"\n")
        self._rest += first
        if len(self._rest) > _LINE_BYTES:
            raise ApiFailed(f"an event is larger than {_LINE_BYTES >> 20} MiB")
        if others:
            self._lines += filter(bytes.strip, [bytes(self._rest), *others[:-1]])
            self._rest = bytearray(others[-1])

    def close(self) -> None:
        self._response.close()


def _configured(source: KubernetesReplicas) -> tuple[Configuration, str]:
    """Return the configuration of the client, and the namespace. Reads files."""
    configuration = Configuration()
    path = source.kubeconfig
    if path is None:
        kubernetes_config.load_incluster_config(configuration)
        return configuration, source.namespace or _NAMESPACE_FILE.read_text().strip()
    context = _context(path, source.context)
    loading = kubernetes_config.load_kube_config(
        config_file=path,
        context=context["name"],
        client_configuration=configuration,
        persist_config=False,
    )
    asyncio.run(loading)  # It only reads files: `_context` refuses everything else.
    return configuration, source.namespace or context["context"].get("namespace") or "default"


def _context(path: str, name: str) -> dict[str, Any]:
    """Return a context of a kubeconfig.

    Programs that print credentials are refused: the client cannot end one that hangs.
    """
    content = yaml.safe_load(Path(path).read_text())
    contexts, current = kubernetes_config.list_kube_config_contexts(path)
    context = next((each for each in contexts if each["name"] == name), None) if name else current
    if context is None:
        raise ValueError(f"{path} has no context {name}")
    for each in content.get("users") or ():
        if each["name"] == context["context"].get("user"):
            for refused in {"exec", "auth-provider"} & {*each["user"]}:
                raise ValueError(f"{refused!r} of the user in {path} is not supported: use a token")
    return dict(context)


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Return the body of a response. Raises ValueError if it has more bytes than `most`."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > most:
            raise ValueError(f"a response is larger than {most} bytes")
    return bytes(body)


def _keep_alive(response: aiohttp.ClientResponse) -> None:
    """Let the kernel notice that the server's machine is gone."""
    connection = response.connection
    transport = None if connection is None else connection.transport
    sock = None if transport is None else transport.get_extra_info("socket")
    if sock is not None:
        for option in _KEEPALIVE:
            sock.setsockopt(*option)
