"""Decodes the objects of the Kubernetes API: EndpointSlices, pods, lists and watch events. Pure.

Only the fields that discovery reads are declared. All others are skipped, so a large object costs
little. The declared types are those of the API (discovery.k8s.io/v1 and v1).

`Stated`: reads the settings that a pod or a Service states in labels and annotations. Pure.

A label is used like an annotation of the same name. If both are present, the annotation counts.
Models with a slash in their names need an annotation, because the values of labels have none.

Must never: read a pool or a credential, because the owner of a pod must not get another's secret;
override a configured region, because the owner of a pod must not get the data of another region.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from router.config.keys import REGION, REGION_RULE
from router.fleet.engines.common.registry import ENGINES


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


PREFIX: Final = "hedgerow.dev/"
# Well-known labels, which Kubernetes 1.35 copies from the node to each of its pods.
_ZONE: Final = "topology.kubernetes.io/zone"
_REGION: Final = "topology.kubernetes.io/region"
_TEXT_MAX: Final = 200  # Characters; the values become label values of metrics.
_SHOWN: Final = 60  # Characters of an invalid value in the text of a problem.


class Stated(NamedTuple):
    """What the labels and annotations of one object state."""

    settings: dict[str, object]  # By the name of the field in `ReplicaSettings`.
    port: str = ""  # A number or a name; "": none is stated.
    problem: str = ""  # The first invalid value; "": all are valid.
    unused: str = ""  # Why a valid value is not used; "": all are used.


def stated(metadata: Metadata, region: str = "") -> Stated:
    """Return the settings that an object states. An invalid value is not among them.

    `region`: the region of the source; "": none is configured.
    """
    labels, annotations = metadata.labels or {}, metadata.annotations or {}
    settings: dict[str, object] = {}
    for label, setting in ((_ZONE, "zone"), (_REGION, "region")):
        if labels.get(label):
            settings[setting] = labels[label]
    problem = ""
    for setting, read in READERS.items():
        name = PREFIX + setting
        text = annotations.get(name, labels.get(name))
        if text is not None:
            try:
                settings[setting] = read(text.strip())
            except ValueError as err:
                problem = problem or f"{name}: {text[:_SHOWN]!r} {err}"
    unused = ""
    if region:
        own = PREFIX + "region"
        said = settings.pop("region", region)
        if said != region and (own in annotations or own in labels):
            unused = f"{own}: {said!r} is not used: the region of the source is {region!r}"
    return Stated(settings, str(settings.pop("port", "")), problem, unused)


def _models(text: str) -> tuple[str, ...]:
    models = tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
    if not models:
        raise ValueError("names no model; separate several models by commas")
    return models


def _engine(text: str) -> str:
    if text not in ENGINES:
        raise ValueError(f"must be one of {', '.join(ENGINES)}")
    return text


def _port(text: str) -> str:
    if not text or (text.isdecimal() and not 0 < int(text[:9]) < 65536):
        raise ValueError("must be 1 to 65535, or the name of a port")
    return text


def _region(text: str) -> str:
    if not REGION.match(text):
        raise ValueError(f"is invalid: {REGION_RULE}")
    return text


def _text(text: str) -> str:
    if not text.isprintable() or len(text) > _TEXT_MAX:
        raise ValueError(f"must be at most {_TEXT_MAX} printable characters")
    return text


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


READERS: Final[Mapping[str, Callable[[str], object]]] = {
    "models": _models,
    "engine": _engine,
    "port": _port,
    "zone": _text,
    "region": _region,
    "type": _text,
    "spot": _flag,
}
