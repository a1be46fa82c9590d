"""Declares the section `models`: what the model names that clients write stand for."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from router.config.model.setting_types import Frozen


class ModelTarget(Frozen, frozen=True):
    """A model to which requests are sent. A list item may also be only the model's name."""

    # The model that is requested from replicas. "": the name that the client wrote.
    model: str = ""
    # Only the replicas of this pool get the requests. "": all replicas that serve the model. In
    # metrics and in `routing.models`, the model is then named `model@pool`.
    pool: str = ""


class SplitTarget(ModelTarget, frozen=True):
    """A model that gets a share of the requests."""

    # The share of the requests: this weight divided by the sum of all weights.
    weight: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 1.0


class ModelRoute(Frozen, frozen=True):
    """What a model name that clients write stands for. A value may also be only a model's name."""

    # The models that get the requests, each its share. Empty: the model of that name.
    targets: tuple[SplitTarget, ...] = ()
    # Which requests get the same target. session: the requests of a conversation (`x-session-id`, a
    # session header of coding agents, or the body's `session_id`, `prompt_cache_key`, `user` or
    # `metadata.user_id`). flow: the requests of an API key's user, or of a client address. request:
    # none. A request without a session gets a random target.
    sticky: Literal["session", "flow", "request"] = "session"
    # Where a request goes, in this order, if it cannot be served. Only regions that the API key may
    # use are considered.
    fallbacks: tuple[ModelTarget, ...] = ()
    # When a request goes to the next fallback. no_replica: no replica of the model is up.
    # queue_full: the queue is full, or all replicas are at their limits. deadline: the first token
    # would come too late. failure: all attempts failed before any content.
    fall_back_on: tuple[Literal["no_replica", "queue_full", "deadline", "failure"], ...] = (
        *("no_replica", "queue_full", "deadline", "failure"),
    )
    # Write the client's name into the member `model` of responses. Otherwise responses have the
    # name that the replica writes.
    restore_name: bool = False
