"""The input of a routing policy (a request, the replicas, a context) and its output (a pick).

The router keeps these facts up to date. This is a separate module because it is compiled together
with the code that writes the facts for every request.

Must never: make a decision, or contain a fact that a policy may not see.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final, Generic, TypeVar

from mypy_extensions import mypyc_attr

from policies.allowed import Allowed
from policies.engine_speed import EngineSpeed

_NO_SLO: Final = float("inf")


class RequestView:
    """The facts of a request that a policy may use. The object belongs to one request and is
    updated in place: a policy may keep `blocks` (a tuple), but no other part.
    """

    __slots__ = (
        "allowed",
        "arrived",
        "attempts",
        "block_tokens",
        "blocks",
        "body_bytes",
        "bounded_bytes",
        "chains",
        "choices",
        "decodes",
        "kind",
        "media_tokens",
        "model",
        "output_limit",
        "output_tokens",
        "prompt_bytes",
        "prompt_tokens",
        "region",
        "session",
        "stream",
        "tpot_slo_s",
        "ttft_slo_min_s",
        "ttft_slo_s",
        "ttft_slo_usual_s",
        "urgency",
        "worth",
    )

    def __init__(
        self,
        kind: str = "chat",
        model: str | None = None,
        stream: bool = False,
        body_bytes: int = 0,
        attempts: int = 0,
        *,
        prompt_bytes: int = 0,
        prompt_tokens: int = 0,
        blocks: tuple[int, ...] = (),
        block_tokens: float = 128.0,
        session: str | None = None,
        output_tokens: int = -1,
        output_limit: int = -1,
        urgency: int = 2,
        worth: float = 1.0,
        arrived: float = 0.0,
        ttft_slo_s: float = _NO_SLO,
        tpot_slo_s: float = _NO_SLO,
        ttft_slo_min_s: float = 0.0,
    ) -> None:
        # Whether the engine generates tokens. If not, the request is only prefilled, like an
        # embedding, or needs no GPU.
        self.decodes = True
        self.kind = kind  # the route: "chat", "completions", "embeddings", ... or "other"
        self.model = model  # None: the request names no model
        self.stream = stream
        self.body_bytes = body_bytes
        self.attempts = attempts  # attempts already made for this request
        self.prompt_bytes = prompt_bytes  # bytes of the prompt as the client sent it, without media
        # The same, if all of it belongs to one prompt; 0: the number of tokens cannot be bounded by
        # the bytes, because of several prompts or token IDs.
        self.bounded_bytes = 0
        # Estimated tokens of the prompt; 0: there is no prompt, or the count is unknown.
        self.prompt_tokens = prompt_tokens
        # Its part for images, sounds and other media, whose bytes are not in `prompt_bytes`.
        self.media_tokens = 0
        self.blocks = blocks  # chained prefix block hashes, the first block first
        self.block_tokens = block_tokens  # estimated tokens of one block, > 0
        self.chains: object = None  # for the caller only: the token IDs, if they are known
        self.session = session  # the session key that the client sent; None: the client sent no key
        # Output tokens of all choices, as predicted by the queue; below 0: not predicted yet.
        self.output_tokens = output_tokens
        # The client's limit of output tokens for each choice; below 0: not needed for this request,
        # or no limit is set.
        self.output_limit = output_limit
        self.choices = 1  # the number of answers (`n`) that the client wants, >= 1
        self.urgency = urgency  # the class: 0 critical, 1 high, 2 normal, 3 low, 4 batch
        # how much each token of the request counts, > 0; the policies `gain` and `slide` use it
        self.worth = worth
        self.arrived = arrived  # monotonic seconds
        # The SLOs, in seconds, > 0: the time from the arrival to the first token, and the time that
        # each further token adds to its deadline. Infinity: the caller sets no SLO.
        self.ttft_slo_s = ttft_slo_s
        self.tpot_slo_s = tpot_slo_s
        # The shortest TTFT SLO that the client may state, at most `ttft_slo_s`. If a client's own
        # deadline is earlier than that, the arrival time plus this SLO is used instead. So no
        # client can give a request the deadline of a more urgent class.
        self.ttft_slo_min_s = ttft_slo_min_s
        # The TTFT SLO of the request's key or class, in seconds, which the client cannot change.
        self.ttft_slo_usual_s = ttft_slo_s
        # The replicas to which the request may be sent; None: all. All candidates are allowed.
        self.allowed: Allowed | None = None
        self.region = ""  # the region that the client prefers; "": the router's


@mypyc_attr(allow_interpreted_subclasses=True)
class Candidate:
    """The facts of a replica that a policy may use: one object per replica, updated in place."""

    __slots__ = (
        "context_tokens",
        "id",
        "inflight",
        "is_fit",
        "kv_tokens",
        "kv_usage",
        "load",
        "models",
        "pending_tokens",
        "slots",
        "speed",
        "tpot_s",
        "ttft_s",
        "waiting",
        "weight",
    )

    def __init__(
        self,
        id: str,
        *,
        inflight: int = 0,
        weight: float = 1.0,
        waiting: int = 0,
        load: int | None = None,
        pending_tokens: int = 0,
        kv_usage: float | None = None,
        kv_tokens: int | None = None,
        slots: int | None = None,
        ttft_s: float | None = None,
        tpot_s: float | None = None,
    ) -> None:
        self.id = id
        self.inflight = inflight  # this router's attempts that were dispatched and have not ended
        self.weight = weight  # relative share of requests, > 0; slow start lowers it for a while
        # This router's attempts without a first content event, and other clients' waiting requests.
        self.waiting = waiting
        # This router's attempts under way, and other clients' running and waiting requests.
        self.load = inflight if load is None else load
        # Uncached prompt tokens of this router's attempts without a first content event.
        self.pending_tokens = pending_tokens
        # Estimated share of the KV cache in use now, 0 to 1; None: unknown. It is the engine's last
        # report, corrected for requests that have started or ended since, and for prompts that are
        # still to be prefilled. A policy must not correct the estimate again.
        self.kv_usage = kv_usage
        self.kv_tokens = kv_tokens  # tokens that fit into the KV cache; None: unknown
        self.slots = slots  # requests the engine runs at once; None: unknown
        self.ttft_s = ttft_s  # recent seconds from dispatch to first content; None: unknown
        self.tpot_s = tpot_s  # recent seconds per output token; None: unknown
        self.is_fit = True  # whether the replica may get requests: it is up and not ejected
        # The models that the replica serves; None: unknown, or any.
        self.models: frozenset[str] | None = None
        # Estimated tokens of the contexts of all sequences that decode at the replica.
        self.context_tokens = 0
        self.speed = EngineSpeed()  # predicts the replica's latencies


C = TypeVar("C", bound=Candidate)


_NOTHING_HELD: Mapping[Any, int] = {}


class Context:
    """The context of one choice: a seeded random generator, the time, and which replicas hold the
    prompt's prefix."""

    __slots__ = ("held", "now", "rng")

    def __init__(
        self, rng: Random, now: float = 0.0, held: Mapping[Any, int] = _NOTHING_HELD
    ) -> None:
        self.rng = rng
        self.now = now  # monotonic seconds
        # By candidate: how many of the request's leading blocks its cache holds. A candidate that
        # is not in the mapping holds none. The mapping may contain replicas that are not
        # candidates.
        self.held = held


class Pick(Generic[C]):
    """A chosen candidate and a short reason."""

    __slots__ = ("candidate", "reason")

    def __init__(self, candidate: C, reason: str) -> None:
        self.candidate = candidate
        self.reason = reason
