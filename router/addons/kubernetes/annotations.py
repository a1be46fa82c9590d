"""Reads the settings that a pod or a Service states in labels and annotations. Pure.

A label is used like an annotation of the same name. If both are present, the annotation counts.
Models with a slash in their names need an annotation, because the values of labels have none.

Must never: read a pool or a credential, because the owner of a pod must not get another's secret;
override a configured region, because the owner of a pod must not get the data of another region.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from router.addons.kubernetes.objects import Metadata
from router.config.keys import REGION, REGION_RULE
from router.fleet.engines.common.registry import ENGINES

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
