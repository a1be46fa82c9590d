"""Finds the engines that one object of Kubernetes names. Pure.

An EndpointSlice names up to 1000 endpoints, a pod itself. The addresses of one pod in several
slices lead to the same engine, so an engine is identified by the UID of its pod.

`Objects`, `EndpointSet`: keeps the objects of one source, and derives the replicas that they name.
Pure.

An engine joins when it is ready. It leaves when no object names it any more, because another pod
may get its address. It also leaves when an object says that it is terminating, unless no other
engine would be left. If it is only no longer ready, it stays, because the router probes it itself
and knows sooner. If a new version of its object is invalid, it keeps its settings.

Must never: do I/O or read a clock; use a part of a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final, NamedTuple

import msgspec

from router.addons.kubernetes.objects import (
    ApiFailed,
    Endpoint,
    EndpointSlice,
    Event,
    Head,
    Invalid,
    Metadata,
    Pod,
    Stated,
    Status,
    decoded,
    stated,
)
from router.config.address import join_host_port, parse_replica_url
from router.config.model import KubernetesReplicas, Replica, ReplicaSettings
from router.config.replica_checks import id_rule
from router.fleet.discovery.roster import Found
from router.fleet.discovery.source import summary

# Phases of a pod whose containers do not run again. Another pod may get its address.
_OVER: Final = ("Succeeded", "Failed")
_ENDPOINTS_MAX: Final = 1000  # Endpoints of one slice; the limit of the API.


class Candidate(NamedTuple):
    """One address of an engine, as one object states it."""

    key: str  # The UID of the pod; without a pod, the address and the port.
    is_ready: bool
    is_terminating: bool
    found: Found | None  # `None`: what the object states is invalid.
    problem: str = ""  # What is invalid or not used.
    is_ipv6: bool = False


class _Port(NamedTuple):
    name: str
    number: int


class _Engine(NamedTuple):
    """One address of an engine, before its port and its settings are known."""

    uid: str
    pod: str  # `namespace/name`; "": no pod.
    address: str
    node: str
    zone: str
    is_ready: bool
    is_terminating: bool


def of_slice(one: EndpointSlice, source: KubernetesReplicas) -> list[Candidate]:
    """Return the candidates of one EndpointSlice. Raises Invalid if it has too many endpoints."""
    if len(one.endpoints or ()) > _ENDPOINTS_MAX:
        raise Invalid(f"has more than {_ENDPOINTS_MAX} endpoints")
    ports = [
        _Port(port.name or "", port.port)
        for port in one.ports or ()
        if port.port is not None and port.protocol in (None, "", "TCP")
    ]
    engines = (_of_endpoint(endpoint, one.metadata) for endpoint in one.endpoints or ())
    says = stated(one.metadata, source.region)
    return [_candidate(engine, ports, says, source) for engine in engines if engine is not None]


def _of_endpoint(endpoint: Endpoint, metadata: Metadata) -> _Engine | None:
    if not endpoint.addresses:
        return None
    target, conditions = endpoint.target_ref, endpoint.conditions
    is_pod = target is not None and target.kind == "Pod" and bool(target.name)
    return _Engine(
        target.uid if target is not None else "",
        f"{target.namespace or metadata.namespace}/{target.name}" if target and is_pod else "",
        endpoint.addresses[0],
        endpoint.node_name or "",
        endpoint.zone or "",
        conditions.ready is not False,
        conditions.terminating is True,
    )


def of_pod(pod: Pod, source: KubernetesReplicas) -> list[Candidate]:
    """Return the candidates of one pod: one for each of its addresses, usually one of a family.

    A pod that has ended names no engine.
    """
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    if status.phase in _OVER:
        return []
    addresses = [each.ip for each in status.pod_ips or ()]
    if not addresses and status.pod_ip:
        addresses = [status.pod_ip]
    ports = [
        _Port(port.name or "", port.container_port)
        for container in (*(spec.containers or ()), *(spec.init_containers or ()))
        for port in container.ports or ()
        if port.protocol in (None, "", "TCP")
    ]
    is_ready = any(c.type == "Ready" and c.status == "True" for c in status.conditions or ())
    is_terminating = metadata.deletion_timestamp is not None
    says = stated(metadata, source.region)
    return [
        _candidate(
            _Engine(
                metadata.uid,
                f"{metadata.namespace}/{metadata.name}",
                address,
                spec.node_name or "",
                "",
                is_ready,
                is_terminating,
            ),
            ports,
            says,
            source,
        )
        for address in addresses
        if address
    ]


def _candidate(
    engine: _Engine, ports: list[_Port], says: Stated, source: KubernetesReplicas
) -> Candidate:
    name = engine.pod or engine.address
    try:
        found = _found(engine, ports, says, source)
    except ValueError as err:
        key = engine.uid or engine.address
        return Candidate(key, engine.is_ready, engine.is_terminating, None, f"{name}: {err}")
    key = engine.uid or found.replica.id
    unused = f"{name}: {says.unused}" if says.unused else ""
    is_ipv6 = ":" in engine.address
    return Candidate(key, engine.is_ready, engine.is_terminating, found, unused, is_ipv6)


def _found(engine: _Engine, ports: list[_Port], says: Stated, source: KubernetesReplicas) -> Found:
    """Return the replica. Raises ValueError."""
    if says.problem:
        raise ValueError(says.problem)
    address = ip_address(engine.address)  # No names: the type FQDN of slices is deprecated.
    if address.is_unspecified or address.is_multicast:
        raise ValueError(f"{address} is not the address of an engine")
    number = _number(says.port or str(source.port), ports)
    url = _url(source, str(address), number)
    parsed = parse_replica_url(url)
    name = f"{engine.pod}:{number}{parsed.base_path}" if engine.pod else parsed.default_id
    if engine.pod and source.context:
        name = f"{source.context}/{name}"  # Clusters may have pods of the same name.
    if why := id_rule(name):
        raise ValueError(f"the ID {name[:200]!r} {why}")
    own = {"zone": engine.zone} if engine.zone else {}
    settings = {**own, **says.settings}
    if engine.node:
        settings["node"] = engine.node
    return Found(_replica(source, name, url, settings), stated=tuple(settings.items()))


def _number(wanted: str, ports: list[_Port]) -> int:
    """Return the number of the port that is wanted. Raises ValueError."""
    if wanted.isdecimal():
        return int(wanted)
    numbers = {port.number for port in ports if wanted in ("", port.name)}
    if len(numbers) == 1:
        return numbers.pop()
    if wanted:
        raise ValueError(f"has {'several ports' if numbers else 'no port'} named {wanted!r}")
    raise ValueError("has several ports: set port" if numbers else "has no port: set port")


def renewed(found: Found, source: KubernetesReplicas) -> Found:
    """Return a replica of an earlier answer with the present settings of its source."""
    replica = found.replica
    parsed = parse_replica_url(replica.url)
    url = _url(source, parsed.host, parsed.port)
    return found._replace(replica=_replica(source, replica.id, url, dict(found.stated)))


def _url(source: KubernetesReplicas, host: str, port: int) -> str:
    return f"{source.scheme}://{join_host_port(host, port)}{source.path}"


def _replica(
    source: KubernetesReplicas, name: str, url: str, settings: dict[str, object]
) -> Replica:
    shared = {field: getattr(source, field) for field in ReplicaSettings.__struct_fields__}
    # A reload may have set the region after the replica was found.
    fixed = {"region": source.region} if source.region else {}
    return Replica(id=name, url=url, **{**shared, **settings, **fixed})


_VERSION: Final = re.compile(r"[0-9]{1,20}\Z")  # etcd counts in 64 bits.
_SHOWN: Final = 200  # Maximum length of the server's text in the text of an error.

# The engines that have joined, by key, each with its last valid settings.
Joined = dict[str, Found]


class Objects:
    """The objects of a source. Each is stored as the candidates that it names."""

    def __init__(self, source: KubernetesReplicas) -> None:
        self.invalid: dict[str, str] = {}  # Why an object cannot be decoded, by `namespace/name`.
        self._source = source
        self._known: dict[str, list[Candidate]] = {}  # By `namespace/name`.

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[list[Candidate]]:
        return iter(self._known.values())

    def add(self, raw: msgspec.Raw, before: Objects) -> None:
        """Store one object of a list. Raises Invalid if it is not an object."""
        self.store(_name(raw), raw, before)

    def store(self, name: str, raw: msgspec.Raw, before: Objects) -> bool:
        """Store an object. Returns whether it differs from the version in `before`.

        If `raw` is invalid, the version in `before` is stored.
        """
        was_invalid = before.invalid.get(name)
        known = before._known.get(name)
        self.invalid.pop(name, None)
        try:
            if self._source.service:
                found = of_slice(decoded(EndpointSlice, raw), self._source)
            else:
                found = of_pod(decoded(Pod, raw), self._source)
        except Invalid as err:
            found = known or []
            self.invalid[name] = f"{name}: {err}"
        self._known[name] = found
        return found != known or was_invalid != self.invalid.get(name)

    def drop(self, name: str) -> None:
        self._known.pop(name, None)
        self.invalid.pop(name, None)


class EndpointSet:
    """The objects of one source, and the engines that have joined."""

    def __init__(self, source: KubernetesReplicas, joined: Joined) -> None:
        """`joined`: the engines that had joined before a reload."""
        self.version = ""  # The version from which a watch continues; "": a list is needed.
        self.problem = ""  # What is wrong with the present objects.
        self.joined: Joined = {key: renewed(found, source) for key, found in joined.items()}
        self.objects = Objects(source)
        self._source = source
        self._has_joined = bool(joined)  # Whether any engine has joined.

    def listed(self, objects: Objects, version: str) -> None:
        """Replace all objects by those of a whole list. Raises Invalid."""
        if not _VERSION.match(version):
            raise Invalid(f"a list of the version {version[:_SHOWN]!r}")
        self.objects = objects
        self.version = version

    def changed(self, line: bytes) -> bool:
        """Apply one event of the watch. Returns whether an engine may have changed.

        Raises ApiFailed for the report of an error, and Invalid, also for an event that is older
        than the one before.
        """
        event: Event = decoded(Event, line)
        if event.type == "ERROR":
            status: Status = decoded(Status, event.object)
            raise ApiFailed(f"{status.code} {status.message[:_SHOWN]}", status.code)
        self._advance(decoded(Head, event.object).metadata.resource_version)
        if event.type == "BOOKMARK":
            return False
        name = _name(event.object)
        if event.type == "DELETED":
            self.objects.drop(name)
            return True
        if event.type in ("ADDED", "MODIFIED"):
            return self.objects.store(name, event.object, self.objects)
        raise Invalid(f"an event of the type {event.type[:_SHOWN]!r}")

    def _advance(self, version: str) -> None:
        """Versions are decimal numbers that increase (KEP-5504)."""
        if not _VERSION.match(version) or int(version) < int(self.version):
            raise Invalid(f"an event of the version {version[:_SHOWN]!r} after {self.version}")
        self.version = version

    def found(self) -> list[Found]:
        """Return the replicas, in the order of their IDs, and set `problem`."""
        engines: dict[str, list[Candidate]] = {}
        for candidates in self.objects:
            for each in candidates:
                engines.setdefault(each.key, []).append(each)
        problems = [*self.objects.invalid.values()]
        before, self.joined = self.joined, {}
        for key, candidates in engines.items():
            # A termination cannot be revoked, so an object that says otherwise is out of date.
            if any(each.is_terminating for each in candidates):
                continue
            problems += [each.problem for each in candidates if each.problem]
            found = _chosen(candidates, before.get(key))
            if found is not None:
                self.joined[key] = found
        if not self.joined:
            # The last engines stay while an object names them.
            self.joined = {key: found for key, found in before.items() if key in engines}
        self._has_joined = self._has_joined or bool(self.joined)
        if engines and not self.joined:
            problems.append("no endpoint is ready")
        elif not self._has_joined:
            problems.append("there are no endpoints")  # The selector may be wrong.
        self.problem = summary(problems)
        return sorted(self.joined.values(), key=_id)


def _chosen(candidates: list[Candidate], before: Found | None) -> Found | None:
    """Return the address and the settings of one engine that are used; `None`: none are.

    `before`: what was used before; `None`: the engine has not joined.
    """
    if before is None and not any(each.is_ready for each in candidates):
        return None
    valid = [each.found for each in sorted(candidates, key=_is_ipv6) if each.found is not None]
    if before is not None:
        # The engine keeps its address while it has it, so that it does not move without need.
        same = [found for found in valid if found.replica.url == before.replica.url]
        valid = [*same, *valid, before]
    return valid[0] if valid else None


def _is_ipv6(candidate: Candidate) -> bool:
    return candidate.is_ipv6


def _id(found: Found) -> str:
    return found.replica.id


def _name(raw: msgspec.Raw) -> str:
    """Return `namespace/name` of an object. Raises Invalid."""
    metadata = decoded(Head, raw).metadata
    return f"{metadata.namespace}/{metadata.name}"
