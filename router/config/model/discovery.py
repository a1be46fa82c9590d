"""Declares the section `discovery`: the sources that name replicas."""

from __future__ import annotations

from typing import Literal

from router.config.model.replicas import ReplicaSettings
from router.config.model.setting_types import Count, Frozen, Seconds


class DnsName(ReplicaSettings, frozen=True, kw_only=True):
    """A DNS name whose records are replicas. A list item may also be only its URL."""

    # The address of the replicas, such as http://vllm.default.svc.cluster.local:8000. The router
    # looks up the host. Each of its addresses is a replica with the port and the path of this URL.
    url: str
    # The records that are read. address: A and AAAA. a, aaaa: only these. srv: SRV records; a
    # replica has the port and the weight of its record, and the URL has no port. Replicas of a
    # higher priority number get requests only while no replica of a lower number is available. If
    # a target has A and AAAA records, the A records are used.
    records: Literal["address", "a", "aaaa", "srv"] = "address"


class KubernetesReplicas(ReplicaSettings, frozen=True):
    """Replicas in a Kubernetes cluster: the endpoints of a Service, or pods with certain labels.

    Either `service` or `pods` is needed. Labels and annotations such as `hedgerow.dev/models` take
    precedence over the settings here.
    """

    service: str = ""  # The name of a Service, whose EndpointSlices are watched.
    pods: str = ""  # A label selector, such as app=vllm. The pods that it selects are watched.
    # The namespace of the Service or the pods. "": the namespace of the router's own pod, or of the
    # context in `kubeconfig`.
    namespace: str = ""
    # The port of the replicas: its number, or its name in the Service or the pods. "": their only
    # port.
    port: int | str = ""
    scheme: Literal["http", "https"] = "http"  # The scheme of the URLs of the replicas.
    path: str = ""  # The path prefix of the URLs of the replicas, such as /engine.
    # A kubeconfig file, for a router outside of the cluster. Unset: the service account of the
    # router's pod.
    kubeconfig: str | None = None
    context: str = ""  # The context in `kubeconfig`. "": its current context.

    @property
    def name(self) -> str:
        """The name of the source in logs and metrics."""
        parts = [self.context, self.namespace, self.service or self.pods]
        place = "/".join(filter(None, parts))
        return f"kubernetes:{place}:{self.port}" if self.port else f"kubernetes:{place}"


class Discovery(Frozen, frozen=True):
    """Sources of replicas that change while the router runs.

    A replica that a source no longer names is drained. An answer that fails or is empty changes
    nothing: the fleet keeps its replicas. If several sources name the same replica, the first of
    these counts: `replicas`, the admin API, `files`, `dns`, `kubernetes`.
    """

    # Files in YAML or JSON, each with a list of entries like those of `replicas`. A file is read
    # again when it changed and has then been the same for `interval`. Replace a file by a rename.
    files: tuple[str, ...] = ()
    dns: tuple[DnsName, ...] = ()  # DNS names. They need the optional package `dns`.
    # Services or pods in Kubernetes. They need the optional package `kubernetes`.
    kubernetes: tuple[KubernetesReplicas, ...] = ()
    # The name servers, such as 10.0.0.2 or 127.0.0.1:5353. Empty: those of /etc/resolv.conf.
    nameservers: tuple[str, ...] = ()
    interval_s: Seconds = 1.0  # Time between two reads of a file.
    timeout_s: Seconds = 5.0  # Maximum time of one lookup, read, or request to Kubernetes.
    # Records are looked up again when their TTL has passed, but not sooner than this.
    ttl_min_s: Seconds = 1.0
    # Records are looked up again after this time in any case. A watch of Kubernetes is started
    # again after this time.
    ttl_max_s: Seconds = 300.0
    # The time between two failed lookups of a name, two failed requests to Kubernetes, or two
    # attempts to use an invalid file, starts at `ttl_min` and doubles up to this.
    retry_max_s: Seconds = 60.0
    # Maximum number of replicas of one source, and of the replicas that the admin API has added.
    # Replicas that are in the fleet already stay.
    replicas_max: Count = 1000

    @property
    def has_sources(self) -> bool:
        return bool(self.files or self.dns or self.kubernetes)
