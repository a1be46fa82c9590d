"""The findings of an audit, for the text report and for `--json`.

Times are in seconds and shares from 0 to 1. None: the value is not known. Must never compute a
value.
"""

from __future__ import annotations

from dataclasses import dataclass

from router.lab.audit.parties import Grouping
from router.lab.audit.tally import Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyFinding:
    """One party: its load, its waits, and the waits that it causes for others."""

    label: str
    name: str
    priority: str
    requests: int
    failed: int
    prompt_tokens: int
    output_tokens: int
    token_share: float  # the party's share of all tokens
    ttft_p99_s: float | None  # TTFT of the party's streams
    without_others_p99_s: float | None  # estimated TTFT of its streams without other parties
    ttft: Parts  # parts of the TTFT of all streams of the party
    p99: Parts  # parts of the TTFT of streams at or above the party's p99
    caused_s: float  # seconds of delay that this party causes to all others together
    at_once_mean: float
    at_once_peak: int
    at_once_peak_at: float  # time of the peak, in seconds since 1970


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFinding:
    """The delay that the requests of one party cause to another party, or to itself."""

    victim: str  # label of the delayed party
    causer: str
    itself: bool
    delay_s: float
    share: float  # the delay as a share of the victim's times to first token
    p99_share: float  # the same share, of times at or above the victim's p99


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFinding:
    """The wait of one class's requests in the router's queue."""

    name: str  # name of the class
    requests: int
    waited: int
    in_vain: int  # requests that waited and that no replica answered
    wait_p50_s: float | None  # seconds, of the requests that waited
    wait_p99_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFinding:
    name: str
    attempts: int
    failures: dict[str, int]  # attempts that failed because of this replica, by reason
    unexplained_share: float  # unexplained share of the replica's times to first token


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All findings of an audit.

    Parties are sorted by tokens, pairs by delay, and replicas by attempts, the largest first.
    """

    files: list[str]
    told_by: Grouping  # the attribute that distinguishes parties; may differ from `asked_by`
    asked_by: str
    begin: float  # first arrival, in seconds since 1970
    end: float
    requests: int
    failed: int
    streams: int  # requests with a known first token; only these are examined for delays
    parties: list[PartyFinding]
    pairs: list[PairFinding]
    queue: list[QueueFinding]  # the most urgent class first; empty: no request waited
    replicas: list[ReplicaFinding]
    known: float  # share of streams with a prompt length that was often served without delay
    unexplained_share: float  # unexplained share of all times to first token
    notes: list[str]  # sentences about data that the log lacks
