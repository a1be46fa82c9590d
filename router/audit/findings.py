"""The findings of an audit as plain values, for the text report and for `--json`.

Times in seconds, shares 0 to 1; None: not known. Must never compute a value.
"""

from __future__ import annotations

from dataclasses import dataclass

from router.audit.parties import Grouping
from router.audit.tally import Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyFinding:
    """One party: its load, its waits, and the waits that it causes."""

    label: str
    name: str
    priority: str
    requests: int
    failed: int
    prompt_tokens: int
    output_tokens: int
    token_share: float  # party's share of all tokens
    hit_rate: float | None  # share of its prompt tokens found in caches
    ttft_p50_s: float | None  # of streams, as are the next fields
    ttft_p99_s: float | None
    without_others_p50_s: float | None  # estimated p50 without other parties
    without_others_p99_s: float | None
    ttft: Parts  # parts of the times of all streams of the party
    p99: Parts  # parts of the times at or above the party's p99
    caused_s: float  # delay that this party causes to all others together
    at_once_mean: float
    at_once_peak: int
    at_once_peak_at: float  # time of the peak, in seconds since 1970


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFinding:
    """The cost of one party's requests for another party, or for itself."""

    victim: str  # label of the delayed party
    causer: str
    itself: bool
    delay_s: float
    share: float  # share of the victim's times to first token
    p99_share: float  # share of the victim's times at or above its p99
    shared_time: float  # share of the victim's time at replicas with the other present, too


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFinding:
    """The wait of one class's requests in the router's queue."""

    name: str  # name of the class
    requests: int
    waited: int
    in_vain: int  # requests that waited and that no replica answered
    wait_p50_s: float | None  # of the requests that waited
    wait_p99_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFinding:
    name: str
    attempts: int
    retries: int  # attempts sent here after another attempt had failed
    failures: dict[str, int]  # attempts that failed because of this replica, by reason
    ttft_p50_s: float | None  # time from dispatch to first token
    ttft_p99_s: float | None
    unexplained_share: float  # share of the replica's times to first token


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All findings. Lists are sorted by weight, the heaviest first."""

    files: list[str]
    told_by: Grouping  # the attribute that distinguishes parties; may differ from the requested one
    asked_by: str
    begin: float  # first arrival, in seconds since 1970
    end: float
    requests: int
    failed: int
    unanswered: int  # requests that no replica answered
    streams: int  # requests with a known first token; only these can be victims
    parties: list[PartyFinding]
    pairs: list[PairFinding]
    queue: list[QueueFinding]  # the most urgent class first; empty: no request waited
    replicas: list[ReplicaFinding]
    known: float  # share of streams of a size that was often enough served without delay
    unexplained_share: float  # share of all times to first token
    notes: list[str]  # missing data of the log, in sentences
