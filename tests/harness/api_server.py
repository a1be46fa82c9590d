"""An API server of Kubernetes for pods and EndpointSlices, in the test's own loop.

It implements what a client of the watch depends on, as
https://kubernetes.io/docs/reference/using-api/api-concepts/ describes it: lists in pages of one
version, label selectors, watches from a version, bookmarks, `timeoutSeconds`, 410 for a version
that is no longer in the history, bearer tokens, and the permissions `list` and `watch`.
"""

import asyncio
import copy
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml
from aiohttp import web

from tests.places import LOOPBACK_CERT, LOOPBACK_KEY

Object = dict[str, Any]
# Handles a request instead of the server; the result `None` means that the server handles it.
Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]

TOKEN = "t0ken"
SLICES = "endpointslices"
PODS = "pods"
_API = {SLICES: "discovery.k8s.io/v1", PODS: "v1"}
_KIND = {SLICES: "EndpointSlice", PODS: "Pod"}
_TURN_S = 0.01  # How often a watch looks for changes.


class ApiServer:
    """One server. Objects are changed by `put` and `delete`."""

    def __init__(self) -> None:
        self.url = ""
        self.version = 1000
        self.token: str | None = None  # The valid token; `None`: every request is authenticated.
        self.verbs = {"list", "watch"}  # What the account may do.
        self.fault: Fault | None = None
        self.asked: list[web.Request] = []
        self.watching = 0  # Number of open watches.
        self._objects: dict[tuple[str, str, str], Object] = {}  # By resource, namespace and name.
        # Each change: its version, the resource, the object before, and after it.
        self._history: list[tuple[int, str, Object | None, Object | None]] = []
        self._oldest = 1000  # A watch from an older version is answered with 410.
        self._snapshots: dict[str, tuple[int, list[Object]]] = {}  # By `continue`.
        self._epoch = 0  # Incremented to end all watches.
        self._bookmarks = 0  # Incremented to send a bookmark to all watches.

    def put(self, resource: str, one: Object) -> None:
        """Create or replace an object."""
        self.version += 1
        meta = {"namespace": "default", "uid": str(uuid4()), **one["metadata"]}
        key = (resource, meta["namespace"], meta["name"])
        before = self._objects.get(key)
        if before is not None and "uid" not in one["metadata"]:
            meta["uid"] = before["metadata"]["uid"]
        meta["resourceVersion"] = str(self.version)
        after = {**copy.deepcopy(one), "metadata": meta}
        self._objects[key] = after
        self._history.append((self.version, resource, before, after))

    def delete(self, resource: str, name: str, namespace: str = "default") -> None:
        self.version += 1
        before = self._objects.pop((resource, namespace, name))
        last = copy.deepcopy(before)
        last["metadata"]["resourceVersion"] = str(self.version)
        self._history.append((self.version, resource, last, None))

    def forget(self) -> None:
        """Compact the history, so that only the present version can be watched."""
        self._oldest = self.version
        self._history.clear()
        self._snapshots.clear()

    def disconnect(self) -> None:
        """End all watches."""
        self._epoch += 1

    def bookmark(self) -> None:
        """Send a bookmark to all watches."""
        self._bookmarks += 1

    def count(self, **query: str) -> int:
        """The number of requests with these query parameters."""
        return sum(query.items() <= dict(request.query).items() for request in self.asked)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        if self.fault is not None and (answer := await self.fault(request)) is not None:
            return answer
        if self.token is not None and request.headers.get("authorization") not in (
            f"Bearer {self.token}",
            f"bearer {self.token}",
        ):
            return failure(401, "Unauthorized")
        is_watch = request.query.get("watch") == "true"
        verb = "watch" if is_watch else "list"
        resource, namespace = request.match_info["resource"], request.match_info["namespace"]
        if verb not in self.verbs:
            text = f'{resource} is forbidden: User "system:serviceaccount:a:b" cannot {verb}'
            return failure(403, text)
        if is_watch:
            return await self._watch(request, resource, namespace)
        return self._list(request, resource, namespace)

    def _list(self, request: web.Request, resource: str, namespace: str) -> web.Response:
        limit, continues = int(request.query.get("limit", 0)), request.query.get("continue", "")
        if continues:
            if continues not in self._snapshots:
                return failure(410, "The provided continue parameter is too old")
            version, rest = self._snapshots.pop(continues)
        else:
            selects = selector(request.query.get("labelSelector", ""))
            version, rest = (
                self.version,
                [
                    one
                    for (kind, place, _), one in sorted(self._objects.items())
                    if (kind, place) == (resource, namespace) and selects(one)
                ],
            )
        page, rest = (rest[:limit], rest[limit:]) if limit else (rest, [])
        meta = {"resourceVersion": str(version)}
        if rest:
            meta["continue"] = str(uuid4())
            self._snapshots[meta["continue"]] = version, rest
        kind = _KIND[resource]
        return web.json_response(
            {"kind": f"{kind}List", "apiVersion": _API[resource], "metadata": meta, "items": page}
        )

    async def _watch(
        self, request: web.Request, resource: str, namespace: str
    ) -> web.StreamResponse:
        query = request.query
        seen, epoch, bookmarks = int(query["resourceVersion"]), self._epoch, self._bookmarks
        selects = selector(query.get("labelSelector", ""))
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + int(query.get("timeoutSeconds", 1800))
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)

        async def send(kind: str, one: Object) -> None:
            await response.write(json.dumps({"type": kind, "object": one}).encode() + b"\n")

        self.watching += 1
        try:
            while epoch == self._epoch and loop.time() < ends_at:
                if seen < self._oldest:
                    text = f"too old resource version: {seen} ({self._oldest})"
                    await send("ERROR", status_of(410, text))
                    break
                for version, changed, before, after in list(self._history):
                    if version <= seen or changed != resource:
                        continue
                    seen = version
                    was = before is not None and selects(before)
                    present = after is not None and selects(after)
                    if (after or before or {})["metadata"]["namespace"] != namespace:
                        continue
                    if present and after is not None:
                        await send("MODIFIED" if was else "ADDED", after)
                    elif was and before is not None:
                        meta = {**before["metadata"], "resourceVersion": str(version)}
                        await send("DELETED", {**before, "metadata": meta})
                if bookmarks != self._bookmarks and query.get("allowWatchBookmarks") == "true":
                    bookmarks = self._bookmarks
                    seen = self.version
                    meta = {"resourceVersion": str(seen), "creationTimestamp": None}
                    await send("BOOKMARK", {"kind": _KIND[resource], "metadata": meta})
                await asyncio.sleep(_TURN_S)
        finally:
            self.watching -= 1
        return response


def loopback_tls() -> ssl.SSLContext:
    """A server context with the certificate `LOOPBACK_CERT`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(LOOPBACK_CERT, LOOPBACK_KEY)
    return context


def kubeconfig(folder: Path, url: str, **user: Any) -> str:
    """Write a kubeconfig for an API server, and return its path. Default user: `TOKEN`."""
    cluster = {"server": url, "certificate-authority": LOOPBACK_CERT}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": user or {"token": TOKEN}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return str(path)


def selector(text: str) -> Callable[[Object], bool]:
    """Return whether an object has the labels of a selector such as `a=b,c!=d,e`."""
    terms = [term for term in text.split(",") if term]

    def selects(one: Object) -> bool:
        labels = one["metadata"].get("labels") or {}
        for term in terms:
            name, unequal, value = term.partition("!=")
            if unequal:
                if labels.get(name) == value:
                    return False
            else:
                name, equals, value = term.partition("=")
                if name not in labels or (equals and labels[name] != value):
                    return False
        return True

    return selects


def status_of(code: int, message: str) -> Object:
    return {"kind": "Status", "apiVersion": "v1", "code": code, "message": message}


def failure(code: int, message: str) -> web.Response:
    return web.json_response(status_of(code, message), status=code)


@asynccontextmanager
async def api_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[ApiServer]:
    server = ApiServer()
    app = web.Application()
    for group in ("/apis/discovery.k8s.io/v1", "/api/v1"):
        app.router.add_get(group + "/namespaces/{namespace}/{resource}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    host, port = runner.addresses[0][:2]
    server.url = f"{'https' if tls else 'http'}://{host}:{port}"
    try:
        yield server
    finally:
        server.disconnect()
        await runner.cleanup()
        await asyncio.sleep(0)


def endpoint(
    address: str,
    pod: str = "",
    *,
    ready: bool | None = True,
    terminating: bool = False,
    **more: Any,
) -> Object:
    """An endpoint of an EndpointSlice. Its pod has the UID `uid-NAME`."""
    one: Object = {
        "addresses": [address],
        "conditions": {"ready": ready, "serving": ready, "terminating": terminating},
        **more,
    }
    if pod:
        ref = {"kind": "Pod", "namespace": "default", "name": pod, "uid": f"uid-{pod}"}
        one["targetRef"] = ref
    return one


def slice_of(name: str, *endpoints: Object, port: int = 8000, **meta: Any) -> Object:
    """An EndpointSlice of the Service `vllm` with the port `http`."""
    labels = {"kubernetes.io/service-name": "vllm", **meta.pop("labels", {})}
    return {
        "metadata": {"name": name, "labels": labels, **meta},
        "addressType": "IPv6" if ":" in str([e["addresses"] for e in endpoints]) else "IPv4",
        "endpoints": list(endpoints),
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
    }


def pod_of(
    name: str, *addresses: str, ready: bool = True, port: int = 8000, node: str = "n1", **meta: Any
) -> Object:
    """A pod with the label `app=vllm` and the container port `http`."""
    return {
        "metadata": {"name": name, "labels": {"app": "vllm", **meta.pop("labels", {})}, **meta},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": port}]}],
        },
        "status": {
            "phase": "Running",
            "podIP": addresses[0] if addresses else None,
            "podIPs": [{"ip": address} for address in addresses],
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }
