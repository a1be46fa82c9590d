"""The token-level deadline-aware gain (TDG) of one request: how many of its tokens were on time.

Source: PROSERVE (arXiv 2512.12928). Each token of a request has a fixed deadline:

    deadline of token i = arrival + TTFT SLO + (i - 1) * TPOT SLO,  i = 1 ... n
    gain                = worth * (number of tokens before their deadlines)

All tokens of a request are worth the same (the paper's w_p = w_d = 1). A late first token does not
make the others late, and tokens that come early leave more time for the next ones. The ratio of the
gain to that of the same requests with all tokens on time is the figure to maximise. Here
`first_due` is the deadline of the first token, in monotonic seconds, and `tpot_s` the TPOT SLO in
seconds. All results are numbers of tokens; the caller multiplies them by the worth.

Pure. Must never: read a clock, or allocate anything per token.
"""

from __future__ import annotations

from math import floor
from typing import Final

from policies.token_deadlines import on_time

_NEVER: Final = float("inf")


class StreamGain:
    """Finds the late content events of a stream while it is relayed.

    The relay compares the time of each read with `check_at`, and calls `reads` only for reads at or
    after that time: all events of an earlier read are on time. A stream that stays ahead of its
    deadlines calls `reads` a few times in all, because each call moves `check_at` to the deadline
    of the event that comes next.
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
        self.before = 0.0  # content events of earlier replicas, if the stream was continued
        # The last read that was noted: its time, and the number of events before it. How many
        # events it has is known when the next read is noted.
        self._read_at = -_NEVER
        self._index = 0.0
        self._late = 0.0
        # The last late events that follow each other without one on time: their first index, and
        # the index after the last one.
        self._late_from = self._late_until = 0.0

    def reads(self, now: float, events: int) -> None:
        """Note a read at `now`, before which the replica's stream had `events` content events.

        The number may be negative, if events without content came before the first content.
        """
        index = self.before + max(0, events)
        self._count_until(index)
        self._read_at = now
        self._index = index
        self.check_at = self._first_due + index * self._tpot_s

    def _count_until(self, end: float) -> None:
        """Count the late events of the last noted read, whose events are those before `end`."""
        index, read_at, first_due, tpot_s = (
            self._index,
            self._read_at,
            self._first_due,
            self._tpot_s,
        )
        # The first event on time ends the loop, because the events after it have later deadlines.
        while index < end and first_due + index * tpot_s <= read_at:
            index += 1.0
        if index > self._index:
            self._late += index - self._index
            if self._index > self._late_until:
                self._late_from = self._index
            self._late_until = index
        self._read_at = -_NEVER

    def share(self, events: int) -> float:
        """Return the share of the content events that were on time, 0 to 1; -1: there were none.

        Called once, at the end. `events`: as for `reads`. Up to two events after them, which close
        the stream, do not count.
        """
        count = self.before + max(0, events)
        if count <= 0.0:
            return -1.0
        # The events that close the stream may be a part of the last noted read.
        self._count_until(count + 2.0)
        late = self._late - max(0.0, self._late_until - max(count, self._late_from))
        return (count - late) / count


def on_time_at_once(first_due: float, tpot_s: float, tokens: float, at: float) -> float:
    """Tokens on time of an answer that came in one piece at the time `at`.

    The client cannot use a part of the answer. So all tokens are on time if the answer came before
    the deadline of its last token, else none.
    """
    return tokens if at < first_due + (tokens - 1.0) * tpot_s else 0.0


def on_time_evenly(
    first_due: float, tpot_s: float, tokens: float, first: float, last: float
) -> float:
    """Tokens on time of a stream whose tokens came at equal distances, from `first` to `last`.

    `tokens` is a whole number, at least 1.
    """
    gap_s = (last - first) / (tokens - 1.0) if tokens > 1.0 else 0.0
    return on_time(first - first_due, tpot_s - gap_s, tokens)


def tokens_due(first_due: float, tpot_s: float, most: float, now: float) -> float:
    """The number of tokens whose deadline has passed; at most `most`."""
    if now < first_due:
        return 0.0
    after = (now - first_due) / tpot_s
    return most if after >= most else min(most, 1.0 + floor(after))


def expected_tokens(predicted: int) -> float:
    """Tokens of an answer that did not come.

    `predicted`: the prediction; below 0: unknown, and only the first token is expected.
    """
    return max(1.0, float(predicted))
