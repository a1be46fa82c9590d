"""Declares the section `retry`: how often a failed request is sent again."""

from __future__ import annotations

from router.config.model.setting_types import Count, CountOrNone, Frozen, SecondsOrOff, Share


class Retry(Frozen, frozen=True):
    """How often a request is sent again after an attempt that failed without generated content.

    These requests are repeated, always at another replica. (1) A request that could not be sent,
    because the replica refuses the connection or closes a new one. (2) On the budget: a request
    whose connection was lost, and a stream that ends or reports an error before any content. Not
    if two replicas have lost the request. (3) An answer 429 or 503: on the budget, if all other
    replicas have given such an answer lately. (4) An answer 401, 403 or 407, if the router has a
    credential of its own for the replica (`credential`, `upstream.token`). If no replica accepts
    it, the client gets 502 `credential_refused`. (5) Once: any other 401, 403, 404, 405, 407 or
    410, and other 4xx from the third one in a row. (6) Once, on the budget: 5xx, and a 200 whose
    body is only an `error`.

    If the other replica answers, an error of (4) to (6) counts against the first replica. Three in
    a row, for several clients or with several bodies, eject it. If the other replica gives an error
    as well, the client gets the first one. If the kind is the same, the error counts against no
    replica, and up to four more errors of the first replica are not repeated. The budget is not
    needed if the replica has failed three times in a row.

    Nothing is repeated after content, after a timeout, if the body is larger than
    `limits.retry_body`, or if the request needs one replica. A request to `/v1/responses` is not
    repeated in the cases (2) and (6), because the engine may have stored the response. A request
    whose pooled connection was already closed goes to the same replica once more.

    The defaults of budget and backoff are Envoy's.
    """

    attempts: Count = 3  # Maximum number of attempts of one request, including the first attempt.
    budget: Share = 0.2  # Maximum share of the requests in progress that may be retries.
    budget_min: CountOrNone = 3  # Number of retries in progress that are allowed in any case.
    # Maximum pause before the first retry that counts against the budget. The maximum doubles with
    # each retry. The pause is drawn at random between 0 and the maximum.
    backoff_s: SecondsOrOff = 0.025
    backoff_max_s: SecondsOrOff = 0.25  # The maximum pause is not doubled above this value.
