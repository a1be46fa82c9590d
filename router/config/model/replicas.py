"""Declares the replicas, where their list comes from, and how they are watched and called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from router.config.model.setting_types import (
    Bytes,
    Count,
    Frozen,
    MiB,
    Seconds,
    SecondsOrOff,
    Share,
    TokenSource,
    Weight,
)
from router.fleet.engines.common.base import MOST_RANKS
from router.fleet.engines.common.registry import DIALECTS, ENGINES

if TYPE_CHECKING:
    Engine = str
    EnginePriority = str
else:  # the names of engines and dialects come from the files in router/fleet/engines
    Engine = Literal[tuple(ENGINES)]
    # The dialect (an engine's scale of priorities) in which priorities are sent to a replica.
    EnginePriority = Literal[(*DIALECTS, "none")]


class KvEvents(Frozen, frozen=True):
    """Where an engine publishes its KV cache events (ZMQ, with the framing of vLLM and SGLang)."""

    # The address of the publisher's socket, such as tcp://gpu-1:5557. The data-parallel rank r
    # publishes on this port + r; `replay` likewise.
    endpoint: str
    # The address of the replay socket, such as tcp://gpu-1:5558. Unset: missed events are not read
    # again.
    replay: str | None = None
    topic: str = ""  # The ZMQ topic that the router subscribes to. "": all topics.


class Credential(TokenSource, frozen=True):
    """A token that replicas get instead of the client's credentials.

    One of `token`, `token_file` and `token_env` is needed.
    """

    # The header field for the token. In `authorization`, the word `Bearer` is put before it.
    header: str = "authorization"
    # Send the client's own key, too, in the header fields that the token does not use.
    forward_client_key: bool = False


class ReplicaSettings(Frozen, frozen=True):
    """The settings that a replica has in common with a source of discovery that names replicas."""

    # The models that the replica serves. If the list contains "*", the replica also accepts any
    # other name. Unset: the list is read from the replica's /v1/models.
    models: tuple[str, ...] | None = None
    # What happens to a request for a model that no replica lists. reject: the router refuses it.
    # forward: the engine decides. Unset: it depends on how the engine treats unknown names.
    unknown_models: Literal["reject", "forward"] | None = None
    weight: Weight = 1.0  # A replica with twice the weight gets twice as many requests.
    # Maximum number of requests at this replica at once. Unset: no limit.
    max_inflight: Count | None = None
    # Maximum tokens of a request's prompt and answer together. A request that clearly needs more
    # goes to replicas of its model with a longer context; if there are none, an engine answers it.
    # Unset: the replica reports the number.
    max_model_len: Count | None = None
    # Number of data-parallel ranks behind the address (vLLM, SGLang). Each rank is routed to like a
    # replica of its own, with the header x-data-parallel-rank; `weight` and `max_inflight` apply to
    # each. 1: the engine chooses the rank. Unset: the number that the engine's metrics show.
    data_parallel_ranks: Annotated[int, msgspec.Meta(ge=1, le=MOST_RANKS)] | None = None
    engine: Engine | None = None  # The engine. Unset: it is detected from its responses.
    # The engine whose scale of priorities is used for requests to this replica. Unset: its own
    # engine. none: no priority is sent.
    priority: EnginePriority | None = None
    # The type of the replica, such as its GPU: the name of a type in the file of `hedgerow plan
    # --types`. The access log and the metrics have it.
    type: str = ""
    # The zone of the replica. The second copy of a hedged request prefers another zone.
    zone: str = ""
    # Whether the machine of the replica can be reclaimed at short notice. Among the replicas on
    # which no request waits, requests of class batch prefer such replicas, and requests of class
    # critical avoid them.
    spot: bool = False
    region: str = ""  # The region of the replica. "": the region of the router.
    pool: str = ""  # The pool of the replica, one of `pools`. "": no pool.
    # The secret for this replica. Unset: that of its pool, else `upstream.token`. The admin API
    # cannot set it.
    credential: Credential | None = None


class Replica(ReplicaSettings, frozen=True, kw_only=True):
    """One replica: an HTTP endpoint of an engine. A list item may also be only its URL."""

    # The replica's address: http://host:port or https://host:port, with an optional path prefix.
    url: str
    # The replica's name in logs and metrics. "": host:port, and the path prefix if the URL has one.
    id: str = ""
    # Where the replica publishes KV cache events. Unset: it is detected if `prefix.exact` is on.
    kv_events: KvEvents | None = None
    # The machine of the replica. The second copy of a hedged request prefers another machine.
    node: str = ""


class Upstream(TokenSource, frozen=True):
    """How the router connects to replicas.

    The token is sent to replicas as `Authorization: Bearer`, instead of the client's token.
    """

    # A PEM file with the certificates to trust. Unset: the certificates that the system trusts.
    ca_file: str | None = None
    verify: bool = True  # Verify the replicas' certificates.
    # The server name for TLS and for verifying the certificate. Unset: the URL's host.
    server_name: str | None = None


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


class Health(Frozen, frozen=True):
    """How the router decides which replicas to use. A replica that is down or ejected gets no
    requests. A suspect replica gets requests only if no other replica can.
    """

    interval_s: Seconds = 5.0  # Time between two health probes of a replica, with 20 % jitter.
    # Maximum time that one probe may take. A probe that takes longer fails, unless the replica
    # shows work for requests meanwhile.
    timeout_s: Seconds = 5.0
    rise: Count = 1  # A replica that is down is up after this many successful probes in a row.
    fall: Count = 3  # A replica that is up is down after this many failed probes in a row.
    path: str | None = None  # The path of the probe. Unset: /health, then /v1/models.
    eject_after: Count = 5  # A replica is ejected after this many failed requests in a row.
    # Duration of a replica's first ejection, with 20 % jitter. The duration doubles with each
    # further ejection.
    eject_base_s: Seconds = 10.0
    eject_max_s: Seconds = 300.0  # Maximum duration of an ejection.
    # Maximum share of a model's replicas that are ejected at once. One replica is never ejected.
    # Replicas that are on standby, asleep, cordoned or draining do not count.
    eject_share: Share = 0.5
    # If less than this share of a model's replicas is usable, ejected replicas that are up are used
    # as well. Counted as for `eject_share`; replicas that are down count.
    panic_share: Share = 0.2
    # A replica that came up gets more and more requests during this time, then its full share.
    slow_start_s: SecondsOrOff = 30.0
    # A replica becomes suspect if a first token, or a response that is not streamed, takes this
    # many times the usual time, and the replica shows no other progress meanwhile.
    suspect_factor: Annotated[float, msgspec.Meta(ge=1)] = 10.0
    # A replica does not become suspect before a first token has taken this time. The load in
    # metrics that do not change for this time (some engines: twice) counts as unknown.
    suspect_min_s: Seconds = 5.0
    # Time between two reads of /v1/models. A list is also read when its replica restarts or answers
    # 404 for a model of the list, and all lists are read when a request names an unknown model, at
    # most once in a sixth of this time.
    models_interval_s: Seconds = 30.0
    # A replica that has joined and is not up yet may serve any model. So for this time after it
    # joined, a request for a model that no replica lists gets 503 instead of 404.
    models_wait_s: Seconds = 1800.0


class Polling(Frozen, frozen=True):
    """How the metrics of engines are read."""

    # Time between two reads of a replica's metrics, with 20 % jitter. 0: never.
    interval_s: SecondsOrOff = 1.0
    timeout_s: Seconds = 1.0  # Maximum time that one read may take.
    size: Bytes = 4 * MiB  # A response with more bytes of metrics is ignored.
    stale_s: Seconds = 10.0  # Metrics that are older than this count as unknown.


class Aborts(Frozen, frozen=True):
    """Calls of the abort endpoint of engines that continue a request after its connection closes
    (SGLang).
    """

    # Add a request ID (`rid`) to the body for engines that have an abort endpoint. When a request
    # is cancelled, call that endpoint.
    enabled: bool = True
    timeout_s: Seconds = 1.0  # Maximum time of a call.


class SpotMetadata(Frozen, frozen=True):
    """A metadata service that announces that its machine is reclaimed.

    Without `replica` and `node`, its notices apply to all spot replicas, because the router runs on
    their machine.
    """

    provider: Literal["aws", "gcp", "azure"]  # The cloud; it determines the paths and formats.
    url: str  # The address of the service, such as http://169.254.169.254.
    replica: str = ""  # The ID of the replica that is reclaimed.
    node: str = ""  # The `node` of the replicas that are reclaimed.
    machine: str = ""  # For azure: the name of the machine in events. "": any machine.


class Spot(Frozen, frozen=True):
    """How the router learns that a spot machine is reclaimed.

    The replicas of the machine get no new requests, and requests that would not end in time are
    moved to other replicas.
    """

    # A file that announces a reclaim when it appears. An empty file means all spot replicas. JSON
    # such as {"replicas": ["gpu-1:8000"], "seconds": 30} names replicas; `node` names a machine.
    # Deleting the file ends no reclaim; POST /replicas/ID/uncordon does. Unset: no file is read.
    notice_file: str | None = None
    metadata: tuple[SpotMetadata, ...] = ()  # The metadata services that the router queries.
    interval_s: Seconds = 1.0  # The time between two queries of each source.
    timeout_s: Seconds = (
        2.0  # Maximum time of one query of a metadata service, or read of the file.
    )
    notice_s: Seconds = 30.0  # Time until the machine goes away, if not stated.
    margin_s: SecondsOrOff = 2.0  # Requests should end this long before the machine goes away.
