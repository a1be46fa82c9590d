"""What engines have done for one request: who answers it, since when, and how many tokens it took.

Where an engine tells no counts they are estimated here: from what was relayed, or, of a client that
leaves early, from the time that the engine had.

Must never: decide about an attempt, or write to the client.
"""

from __future__ import annotations

from typing import Final

from router.dispatch.attempts import Attempt
from router.dispatch.client_request import ClientRequest
from router.dispatch.reply import Reply
from router.dispatch.usage import NATIVE, UNKNOWN, Usage
from router.fleet.cadence import Cadence
from router.fleet.replica import Replica
from router.intake.body import SCAN_ABOVE
from router.intake.routes import Route

# Kinds of routes whose answers are text that the engine generates.
_WRITES: Final = frozenset({"chat", "completions", "responses", "messages", "generate"})


class Work:
    """Of one request. Times are monotonic seconds."""

    __slots__ = ("_cadence", "_early", "broke_at", "first_at", "replica", "usage")

    def __init__(self) -> None:
        self.replica: Replica | None = None  # whose content went to the client
        self.first_at = 0.0  # when the first content came; 0: none has come
        self.broke_at = 0.0  # its last content, while another replica is asked for the rest
        self.usage = UNKNOWN  # how many tokens it took; known when it is over
        self._early = UNKNOWN  # ... and was estimated to take, as its client left
        self._cadence: Cadence | None = None  # of the replica whose stream is relayed now

    def shown(self, replica: Replica, now: float) -> Replica | None:
        """A replica shows its first content. Returns who answered before it."""
        before, self.replica = self.replica, replica
        if before is None:
            self.first_at = now
        self.broke_at = 0.0
        return before

    # -- the pace of a stream -----------------------------------------------------------------

    def flows(self, cadence: Cadence, now: float, events: int = 0) -> None:
        """The stream is relayed from now on; `events` of it without a token are not counted."""
        self._cadence = cadence
        cadence.begins(now, events)

    @property
    def is_flowing(self) -> bool:
        return self._cadence is not None

    def stops(self, now: float) -> None:
        """The stream ends, or its client no longer lets it go on."""
        cadence, self._cadence = self._cadence, None
        if cadence is not None:
            cadence.ends(now)

    # -- tokens -------------------------------------------------------------------------------

    def estimate(
        self, attempt: Attempt, asked: ClientRequest, route: Route, measured: int, now: float
    ) -> None:
        """The client leaves before any content: estimate what an engine has done for it until now.

        The engine has read the prompt (`measured` tokens). It may also have made output that nobody
        was shown: a whole answer, or a stream whose first tokens the engine keeps back. That is
        estimated from the engine's usual pace.
        """
        replica = attempt.at
        output = 0.0
        pace_s = replica.cadence_s or replica.tpot_s
        if pace_s:
            busy_s = now - attempt.began - replica.progress.first_s
            output = min(max(0.0, busy_s / pace_s), _most_output(asked))
        self._early = Usage(asked.prompt_tokens(route, measured), int(output), None, False)

    def count(
        self, reply: Reply, asked: ClientRequest, route: Route, measured: int, *, is_whole: bool
    ) -> None:
        """The request is over: say how many tokens it took. `measured`: those of its prompt."""
        usage = reply.usage(is_whole)
        if usage is UNKNOWN:
            usage = self._early
            if self.replica is not None and reply.is_work:
                usage = _relayed(reply, route)
        if usage.prompt_tokens is None and usage is not UNKNOWN and asked.body_bytes > SCAN_ABOVE:
            # The prompt of such a body was not measured, and nobody told its tokens.
            prompt = asked.prompt_tokens(route, measured)
            usage = Usage(prompt, usage.output_tokens, None, False)
        self.usage = usage


def _relayed(reply: Reply, route: Route) -> Usage:
    """An engine has answered and told no counts: those of the output, by what was relayed.

    What is answered on a path that the router does not know counts if it may be text.
    """
    if route.kind not in _WRITES and not reply.is_text:
        return UNKNOWN
    return Usage(None, reply.estimated_output(), None, False)


def _most_output(asked: ClientRequest) -> float:
    """More tokens than that no engine makes for the request.

    An engine may read only one of the members, so the largest counts. Native routes have others of
    their own.
    """
    fields = asked.fields
    most = max(fields.max_tokens or 0, fields.max_completion_tokens or 0)
    most = max(most, fields.max_output_tokens or 0)
    return 1e6 if most <= 0 or asked.path in NATIVE else float(min(most, 1_000_000))
