"""Decodes the objects of the Kubernetes API: EndpointSlices, pods, lists and watch events. Pure.

Only the fields that discovery reads are declared. All others are skipped, so a large object costs
little. The declared types are those of the API (discovery.k8s.io/v1 and v1).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec


class ApiFailed(Exception):
    """The API reports an error, or does not answer. The text of the error states the reason."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status  # The HTTP status, also of an error in a watch; 0: none.


class Invalid(ApiFailed):
    """Bytes that are not the expected object."""


class _Part(msgspec.Struct, rename="camel"):
    """The base class of all parts of objects."""


class Metadata(_Part):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None
    continue_: str | None = msgspec.field(default=None, name="continue")  # Of a list.


class Head(_Part):
    """The part that all objects have in common."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)


class TargetRef(_Part):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EndpointConditions(_Part):
    """`None` of `ready` means true, and `None` of `terminating` means false."""

    ready: bool | None = None
    terminating: bool | None = None


class Endpoint(_Part):
    addresses: list[str] | None = None  # All of them lead to the same engine.
    conditions: EndpointConditions = msgspec.field(default_factory=EndpointConditions)
    target_ref: TargetRef | None = None
    node_name: str | None = None
    zone: str | None = None


class SlicePort(_Part):
    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class EndpointSlice(Head):
    endpoints: list[Endpoint] | None = None
    ports: list[SlicePort] | None = None


class ContainerPort(_Part):
    container_port: int
    name: str | None = None
    protocol: str | None = None


class Container(_Part):
    ports: list[ContainerPort] | None = None


class PodSpec(_Part):
    node_name: str | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None  # A sidecar container is one of them.


class PodAddress(_Part):
    ip: str


class PodCondition(_Part):
    type: str
    status: str


class PodStatus(_Part):
    phase: str | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    pod_ips: list[PodAddress] | None = msgspec.field(default=None, name="podIPs")
    conditions: list[PodCondition] | None = None


class Pod(Head):
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class Status(_Part):
    """The API's description of an error."""

    code: int = 0
    message: str = ""


class Page(_Part):
    """One page of a list. The objects are decoded one by one."""

    metadata: Metadata
    items: list[msgspec.Raw] | None = None


class Event(_Part):
    """One event of a watch."""

    type: str  # ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.
    object: msgspec.Raw


_DECODERS: Final[dict[type, msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(kind) for kind in (Head, EndpointSlice, Pod, Status, Page, Event)
}


def decoded(kind: type[Any], raw: bytes | msgspec.Raw) -> Any:
    """Return `raw` decoded as one of the classes above. Raises Invalid."""
    try:
        return _DECODERS[kind].decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as err:
        raise Invalid(str(err)) from None
