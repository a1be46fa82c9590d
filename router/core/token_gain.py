"""Computes how many tokens of a request were on time: the token-level deadline-aware gain (TDG).

The definition is that of PROSERVE (arXiv 2512.12928). Each token of a request has a fixed deadline:

    deadline of token i = arrival + TTFT SLO + (i - 1) * TPOT SLO,  i = 1 ... n
    gain                = worth * (number of tokens before their deadlines)

All tokens of a request have the same worth (the paper's w_p = w_d = 1). A late first token does not
make later tokens late, and tokens that arrive early leave more time for the next tokens. The router
is good if the gain is close to the gain of the same requests with all tokens on time.

In this module, `first_due` is the deadline of the first token in monotonic seconds, and `tpot_s` is
the TPOT SLO in seconds. All results are numbers of tokens; the caller multiplies them by the worth.

Must never: read a clock, or allocate memory per token.
"""

from __future__ import annotations

from math import floor
from typing import Final

from policies.token_deadlines import on_time

_NEVER: Final = float("inf")


class StreamGain:
    """Counts the late content events of a stream while the router relays it.

    The relay compares the time of each read with `check_at`. It calls `reads` only for reads at or
    after that time, because all events of an earlier read are on time. Each call moves `check_at`
    to the deadline of the next event. So if a stream stays ahead of its deadlines, `reads` is
    called only a few times.
    """

    __slots__ = (
        "_first_due",
        "_index",
        "_late",
        "_late_from",
        "_late_until",
        "_read_at",
        "_tpot_s",
        "before",
        "check_at",
    )

    def __init__(self, first_due: float, tpot_s: float) -> None:
        self._first_due = first_due
        self._tpot_s = tpot_s
        self.check_at = first_due
        # Number of content events of earlier replicas, if another replica continued the stream.
        self.before = 0.0
        # The time of the last read that was noted, and the number of events before that read. The
        # number of events in that read is known only when the next read is noted.
        self._read_at = -_NEVER
        self._index = 0.0
        self._late = 0.0
        # The last series of consecutive late events: the index of its first event, and the index
        # after its last event.
        self._late_from = self._late_until = 0.0

    def reads(self, now: float, events: int) -> None:
        """Note a read at `now`. `events` is the number of the replica's content events before it.

        `events` may be negative if events without content came before the first content.
        """
        index = self.before + max(0, events)
        self._count_until(index)
        self._read_at = now
        self._index = index
        self.check_at = self._first_due + index * self._tpot_s

    def _count_until(self, end: float) -> None:
        """Count the late events of the last noted read, which ends before the event `end`."""
        index, read_at, first_due, tpot_s = (
            self._index,
            self._read_at,
            self._first_due,
            self._tpot_s,
        )
        # If an event is on time, so are the events after it, because their deadlines are later.
        while index < end and first_due + index * tpot_s <= read_at:
            index += 1.0
        if index > self._index:
            self._late += index - self._index
            if self._index > self._late_until:
                self._late_from = self._index
            self._late_until = index
        self._read_at = -_NEVER

    def share(self, events: int) -> float:
        """Return the fraction of the content events that were on time, 0 to 1; -1: no events.

        Call this method once, at the end of the stream. `events` is the number of the last
        replica's content events. Up to two further events, which close the stream, do not count.
        """
        count = self.before + max(0, events)
        if count <= 0.0:
            return -1.0
        # The events that close the stream may be a part of the last noted read.
        self._count_until(count + 2.0)
        late = self._late - max(0.0, self._late_until - max(count, self._late_from))
        return (count - late) / count


def on_time_at_once(first_due: float, tpot_s: float, tokens: float, at: float) -> float:
    """Number of tokens on time of an answer that came in one piece at the time `at`.

    The client cannot use a part of the answer. So all tokens are on time if the answer came before
    the deadline of its last token; otherwise no token is on time.
    """
    return tokens if at < first_due + (tokens - 1.0) * tpot_s else 0.0


def on_time_evenly(
    first_due: float, tpot_s: float, tokens: float, first: float, last: float
) -> float:
    """Number of tokens on time, if they came at equal intervals from `first` to `last`.

    `tokens` is a whole number, at least 1.
    """
    gap_s = (last - first) / (tokens - 1.0) if tokens > 1.0 else 0.0
    return on_time(first - first_due, tpot_s - gap_s, tokens)


def tokens_due(first_due: float, tpot_s: float, most: float, now: float) -> float:
    """The number of tokens whose deadlines have passed; at most `most`."""
    if now < first_due:
        return 0.0
    after = (now - first_due) / tpot_s
    return most if after >= most else min(most, 1.0 + floor(after))


def expected_tokens(predicted: int) -> float:
    """The number of tokens that count for an answer that did not come.

    `predicted` is the predicted number. If it is below 0 (unknown), only the first token counts.
    """
    return max(1.0, float(predicted))
