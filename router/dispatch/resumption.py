"""The interface of the addon that lets another replica generate the rest of a broken stream.

The addon decides whether a stream that broke after its first content is resumed, and builds the
request for the rest. The driver sends it as one more attempt; only such an attempt may replace a
winner. While the addon is off, `Rules.resumption` is `None`, and a broken stream is truncated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from mypy_extensions import mypyc_attr

from router.config.model import Config
from router.core.addons import load
from router.core.errors import Reason
from router.dispatch.driver.attempt_state import Attempt, AttemptState
from router.dispatch.usage.token_counts import Usage
from router.dispatch.usage.usage_tap import UsageTap
from router.fleet.engines.common.descriptor import Engine
from router.fleet.replica import Replica
from router.observe.metrics import Metrics

# The replicas that may generate the rest of a stream, and the body that asks for it.
Rest = tuple[list[Replica], list[bytes]]
# Returns the fit replicas where a request has not failed; see `RequestDriver.others`.
Others = Callable[[], Sequence[Replica] | None]


@mypyc_attr(allow_interpreted_subclasses=True)
class ResumableStream(ABC):
    """One event stream on its way to a client, which may come from several replicas."""

    def __init__(self) -> None:
        # Whether the engine has reported a failure, which is withheld from the client.
        self.is_broken = False
        self.has_ended = False  # Whether the stream has ended after that failure.

    @abstractmethod
    def feed(self, data: bytes) -> bytes:
        """Return the bytes to relay, given the bytes of one read. This runs for every token."""

    @abstractmethod
    def flush(self) -> bytes:
        """Return the held bytes at the normal end of the stream."""

    @abstractmethod
    def take_withheld(self) -> bytes:
        """Return the withheld bytes for the client, because no replica resumes the stream."""

    @abstractmethod
    def usage(self, is_whole: bool) -> Usage:
        """Return the token counts of all parts of the stream. `is_whole`: it ended normally."""

    @abstractmethod
    def rest(
        self,
        state: AttemptState,
        attempt: Attempt,
        why: Reason,
        body: bytes,
        others: Others,
        take_budget: Callable[[], bool],
    ) -> Rest | None:
        """Return where and how the rest is requested; `None`: it is not requested.

        `others`, `take_budget`: the methods of the request's `RequestDriver`.
        `attempt`: the relayed attempt, or one that was asked for the rest. It has failed; if `why`
        is PREEMPTED, it still runs, at a replica that goes away. `body`: the client's body; b"" if
        it is not kept.
        """

    @abstractmethod
    def resumes(self, tap: UsageTap) -> int:
        """Begin another replica's stream, which `tap` reads. Returns the tokens before it."""

    @abstractmethod
    def close(self) -> None:
        """Release everything that is kept, because the request has ended."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Resumption(ABC):
    """Opens the streams of one router."""

    @abstractmethod
    def opens(self, kind: str, engine: Engine, tap: UsageTap) -> ResumableStream | None:
        """Return the stream that `tap` will read; `None` if it can never be resumed."""

    @abstractmethod
    def adopt(self, config: Config) -> None:
        """Apply a reloaded configuration."""

    @abstractmethod
    def kept_bytes(self) -> int:
        """The bytes that are kept for all streams."""


def resumption_of(config: Config, metrics: Metrics) -> Resumption | None:
    """Return the addon, if the configuration enables it. Raises ConfigError."""
    if not config.continuation.enabled:
        return None
    made = load("continuation", "continuation.enabled").resumption(config, metrics)
    assert isinstance(made, Resumption)
    return made
