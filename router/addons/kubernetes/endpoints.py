"""Finds the engines that one object of Kubernetes names. Pure.

An EndpointSlice names up to 1000 endpoints, a pod itself. The addresses of one pod in several
slices lead to the same engine, so an engine is identified by the UID of its pod.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final, NamedTuple

from router.addons.kubernetes.annotations import Stated, stated
from router.addons.kubernetes.objects import (
    Endpoint,
    EndpointSlice,
    Invalid,
    Metadata,
    Pod,
)
from router.config.address import join_host_port, parse_replica_url
from router.config.model import KubernetesReplicas, Replica, ReplicaSettings
from router.config.replica_checks import id_rule
from router.fleet.discovery.roster import Found

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
