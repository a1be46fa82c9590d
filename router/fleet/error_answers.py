"""Compares the error answers of a replica with the answers of other replicas to the same requests.

An error answer alone does not show whether the request or the replica is at fault. So the request
is sent to another replica, too. If that one answers, the first replica is *contradicted*; if it
gives an error of the same kind, the error is *confirmed*, so the request is at fault.

A replica is set aside (`outcomes.py` ejects it) if it is contradicted for at least half of its last
answers, three times in a row at the least, by the requests of several clients or with several
bodies. A busy replica is set aside only after `BUSY_ANSWERS` contradicted answers within at least
`BUSY_S` seconds, without any success in between. A confirmed error lets more errors of its kind
pass before the next comparison. The reasons are in docs/decisions/health.md.

All values are counts of answers; only the rule for busy replicas reads the time. Must never: do
I/O, or read a clock.
"""

from __future__ import annotations

from typing import Final


class ErrorKind:
    """The kind of an error answer. Not an enum: see `Phase` in `attempt_state.py`."""

    KEY: Final = 1  # 401, 403 or 407: the replica does not accept the key.
    MISSING: Final = 2  # 404, 405 or 410: the replica lacks the model or the path.
    REJECTED: Final = 3  # Any other 4xx, except 429.
    FAILED: Final = 4  # 5xx, except 503; or a 200 whose body is only an error.
    BUSY: Final = 5  # 429 or 503.


_KINDS: Final = 6
KEY_STATUS: Final = frozenset({401, 403, 407})
_MISSING_STATUS: Final = frozenset({404, 405, 410})
_BUSY_STATUS: Final = frozenset({429, 503})

# Number of errors of a kind in a row that pass without a comparison, at first.
# A list, because compiled code finds a tuple of floats unset.
_PATIENCE: Final = [0.0, 0.0, 0.0, 2.0, 0.0, 0.0]
PATIENCE_MAX: Final = 4.0
# By how much a successful answer shortens the row of errors: a replica whose errors are more than a
# fifth of its answers has a growing row.
_SUCCESS: Final = 0.25
# The share of one answer in the share of contradicted answers. Three in a row exceed `_MOST`.
_SHARE: Final = 0.25
_MOST: Final = 0.5
# Number of errors in a row, beyond those that pass without a comparison, that begin a pause.
_PAUSES_AFTER: Final = 3.0
BUSY_ANSWERS: Final = 4
BUSY_S: Final = 3.0


def kind_of(status: int) -> int:
    """Return the `ErrorKind` of an error answer. Below 400, only the body is an error."""
    if status in _BUSY_STATUS:
        return ErrorKind.BUSY
    if status in KEY_STATUS:
        return ErrorKind.KEY
    if status in _MISSING_STATUS:
        return ErrorKind.MISSING
    return ErrorKind.REJECTED if 400 <= status < 500 else ErrorKind.FAILED


class ErrorAnswers:
    """The recent error answers of one replica. `kind`: an `ErrorKind`.

    Results of requests write it: `table/outcomes.py`, and the driver and the dispatcher, which
    compare answers. `table/poll_results.py`, after a restart, and `Replica.adopt` allow priorities
    again.
    """

    __slots__ = (
        "_busy_count",
        "_busy_since",
        "_evidence",
        "_is_various",
        "_patience",
        "_row",
        "checks_keys",
        "is_clean",
        "refuses_priority",
        "share",
    )

    def __init__(self) -> None:
        self.is_clean = True  # True: nothing is recorded, so a success changes nothing.
        # The share of the last answers that another replica contradicted.
        self.share = 0.0
        # True: the engine has answered 401 to a request without a valid API key.
        self.checks_keys = False
        # True: the engine has rejected a request because it does not support priorities.
        self.refuses_priority = False
        # For each kind: how many errors in a row were not confirmed, and how many may pass without
        # a comparison.
        self._row = [0.0] * _KINDS
        self._patience = list(_PATIENCE)
        # The client and body of the first contradiction, as a hash; and whether a later one
        # had another client or body.
        self._evidence: int | None = None
        self._is_various = False
        # The busy answers since the last success, and the time of the first one.
        self._busy_count = 0
        self._busy_since = 0.0

    def came(self, kind: int) -> bool:
        """Record an error answer. Returns whether its request should be compared."""
        self.is_clean = False
        self._row[kind] += 1.0
        return self._row[kind] > self._patience[kind]

    def pauses(self, kind: int) -> bool:
        """Return whether so many errors came in a row that other replicas should be preferred."""
        return self._row[kind] >= _PAUSES_AFTER + self._patience[kind]

    def contradicted(self, kind: int, evidence: int | None, now: float) -> bool:
        """Record that another replica has answered the request of an error answer.

        `evidence`: a hash of the request's client and body; `None`: neither has a part in the
        error. Returns whether the replica should be set aside.
        """
        self.is_clean = False
        if self._evidence is None:
            self._evidence = evidence
        if evidence is None or evidence != self._evidence:
            self._is_various = True
        if kind == ErrorKind.BUSY:
            if not self._busy_count:
                self._busy_since = now
            self._busy_count += 1
            is_enough = self._busy_count >= BUSY_ANSWERS and now - self._busy_since >= BUSY_S
            return is_enough and self._is_various
        self._patience[kind] = _PATIENCE[kind]
        self.share += (1.0 - self.share) * _SHARE
        return self.share >= _MOST and self._is_various

    def confirmed(self, kind: int) -> None:
        """Record that another replica has given an error of the same kind to the same request."""
        self.is_clean = False
        self._row[kind] = 0.0
        self._patience[kind] = min(max(1.0, 2.0 * self._patience[kind]), PATIENCE_MAX)

    def takes_priorities(self, does: bool) -> None:
        """Record whether the engine may get priorities. It may again after it has restarted."""
        self.refuses_priority = not does

    def showed_keys(self, does_check: bool) -> None:
        """Record whether the engine checks API keys."""
        self.checks_keys = does_check

    def worked(self) -> None:
        """Record a successful answer."""
        self._busy_count = 0
        self.share *= 1.0 - _SHARE
        is_clean = self.share < 0.1
        if is_clean:
            self.share = 0.0
            self._evidence = None
            self._is_various = False
        for kind in range(1, _KINDS):
            row = self._row[kind] = max(0.0, self._row[kind] - _SUCCESS)
            least = _PATIENCE[kind]
            patience = 0.9 * self._patience[kind]
            if patience < least + 0.1:
                patience = least
            self._patience[kind] = patience
            is_clean = is_clean and not row and patience == least
        self.is_clean = is_clean
