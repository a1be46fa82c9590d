"""Declares the section `replicas`, and the settings that replicas of discovery have as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from router.config.model.setting_types import Count, Frozen, TokenSource, Weight
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
