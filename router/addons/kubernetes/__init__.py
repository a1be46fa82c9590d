"""A source of replicas in Kubernetes: the endpoints of a Service, or pods with certain labels.

The source lists the objects once and then watches them, as the API prescribes: "Efficient detection
of changes" in https://kubernetes.io/docs/reference/using-api/api-concepts/.

- Pure: `objects.py` (the fields of the API's objects, and the settings that they state),
  `endpoints.py` (the engines that an object names, all objects, and the replicas that follow).
- I/O: `client.py` (the official client), `source.py` (list, watch, back-off).
"""

from __future__ import annotations

from random import Random

from router.addons.kubernetes.endpoints import renewed as renewed
from router.addons.kubernetes.source import KubernetesSource
from router.config.model import Discovery, KubernetesReplicas
from router.fleet.discovery.source import Source


def make_source(
    source: KubernetesReplicas, rules: Discovery, rng: Random, before: Source | None
) -> Source:
    """`before`: this source before a reload. The engines that have joined it stay."""
    joined = before.joined if isinstance(before, KubernetesSource) else {}
    return KubernetesSource(source, rules, rng, joined)
