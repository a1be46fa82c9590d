"""What an audit found, as plain values: what the letter says in words and `--json` as it is.

Times in seconds, shares 0 to 1; None: not known. Must never: compute.
"""

from __future__ import annotations

from dataclasses import dataclass

from router.audit.parties import Grouping
from router.audit.tally import Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyFinding:
    """One party: what it brings, what it waits for, what it makes others wait."""

    label: str
    name: str
    priority: str
    requests: int
    failed: int
    prompt_tokens: int
    output_tokens: int
    token_share: float  # of all tokens
    hit_rate: float | None  # share of its prompt tokens found in caches
    ttft_p50_s: float | None  # of streams, as all that follows
    ttft_p99_s: float | None
    without_others_p50_s: float | None  # an estimate
    without_others_p99_s: float | None
    ttft: Parts  # of all its streams
    p99: Parts  # of those at or above its p99
    caused_s: float  # delay of all other parties together
    at_once_mean: float
    at_once_peak: int
    at_once_peak_at: float  # seconds since 1970


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFinding:
    """One party and what another (or it itself) costs it."""

    victim: str  # labels
    causer: str
    itself: bool
    delay_s: float
    share: float  # of the victim's times to first token
    p99_share: float  # ... of those at or above its p99
    shared_time: float  # share of the victim's time at replicas with the other there too


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFinding:
    """What the router's queue cost the requests of one class."""

    name: str  # of the class
    requests: int
    waited: int
    in_vain: int  # of those that waited: no replica answered them
    wait_p50_s: float | None  # of those that waited
    wait_p99_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFinding:
    name: str
    attempts: int
    retries: int  # attempts sent here after one elsewhere (or here) had failed
    failures: dict[str, int]  # attempts that failed by its doing, by reason
    ttft_p50_s: float | None  # from dispatch
    ttft_p99_s: float | None
    unexplained_share: float  # of its times to first token


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Lists are in the order of weight, the heaviest first."""

    files: list[str]
    told_by: Grouping  # by what parties were told apart; not always what was asked for
    asked_by: str
    begin: float  # seconds since 1970
    end: float
    requests: int
    failed: int
    unanswered: int  # no replica answered them
    streams: int  # whose first token was seen: only these can be victims
    parties: list[PartyFinding]
    pairs: list[PairFinding]
    queue: list[QueueFinding]  # the most urgent class first; none: nobody waited
    replicas: list[ReplicaFinding]
    known: float  # share of streams of a size of which enough were served without delay
    unexplained_share: float  # of all times to first token
    notes: list[str]  # what the log lacks, in sentences
