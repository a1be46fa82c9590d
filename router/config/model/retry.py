"""Declares the section `retry`: how often a failed request is sent again."""

from __future__ import annotations

from router.config.model.setting_types import Count, CountOrNone, Frozen, SecondsOrOff, Share


class Retry(Frozen, frozen=True):
    """How often a request is sent again after an attempt that failed without generated content.

    The defaults of budget and backoff are Envoy's.
    """

    attempts: Count = 3  # Maximum number of attempts of one request, including the first attempt.
    budget: Share = 0.2  # Maximum share of the requests in progress that may be retries.
    budget_min: CountOrNone = 3  # Number of retries in progress that are allowed in any case.
    # Maximum pause before the first retry that counts against the budget. The maximum doubles with
    # each retry. The pause is drawn at random between 0 and the maximum.
    backoff_s: SecondsOrOff = 0.025
    backoff_max_s: SecondsOrOff = 0.25  # The maximum pause is not doubled above this value.
