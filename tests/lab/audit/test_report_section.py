"""The report as text: it names only the parties that cause large delays."""

from dataclasses import replace

from router.lab.audit.blame import Parts
from router.lab.audit.findings import (
    Findings,
    PairFinding,
    PartyFinding,
    QueueFinding,
    ReplicaFinding,
)
from router.lab.audit.report_section import report_text

EPOCH = 1_772_366_400.0


def parts(others: float = 0.0, itself: float = 0.0, requests: int = 1000) -> Parts:
    rest = 100.0 - others - itself
    return Parts(requests, alone_s=rest, others_s=others, itself_s=itself)


def party(name: str, priority: str = "", **fields: object) -> PartyFinding:
    given: dict[str, object] = {
        "label": f"tenant {name} ({priority})" if priority else f"tenant {name}",
        "name": name,
        "priority": priority,
        "requests": 1000,
        "failed": 0,
        "prompt_tokens": 1000,
        "output_tokens": 10,
        "token_share": 0.5,
        "ttft_p99_s": 4.1,
        "without_others_p99_s": 1.4,
        "ttft": parts(),
        "p99": parts(),
        "caused_s": 0.0,
        "at_once_mean": 2.0,
        "at_once_peak": 4,
        "at_once_peak_at": EPOCH,
    }
    return PartyFinding(**{**given, **fields})  # type: ignore[arg-type]


def pair(
    victim: PartyFinding, causer: PartyFinding, p99_share: float, **fields: object
) -> PairFinding:
    given: dict[str, object] = {
        "victim": victim.label,
        "causer": causer.label,
        "itself": victim is causer,
        "delay_s": 512.0,
        "share": 0.12,
        "p99_share": p99_share,
    }
    return PairFinding(**{**given, **fields})  # type: ignore[arg-type]


def replica(name: str, **fields: object) -> ReplicaFinding:
    given: dict[str, object] = {
        "name": name,
        "attempts": 1000,
        "failures": {},
        "unexplained_share": 0.01,
    }
    return ReplicaFinding(**{**given, **fields})  # type: ignore[arg-type]


CHAT = party("c0ffee001122", "high")
BATCH = party("3f9a0c61d2b4", "batch", caused_s=512.0)


def found(*pairs: PairFinding, **fields: object) -> Findings:
    given: dict[str, object] = {
        "files": ["access.log"],
        "told_by": "tenant",
        "asked_by": "tenant",
        "begin": EPOCH,
        "end": EPOCH + 3600.0,
        "requests": 2000,
        "failed": 0,
        "streams": 2000,
        "parties": [CHAT, BATCH],
        "pairs": list(pairs),
        "queue": [],
        "replicas": [replica("r0")],
        "known": 1.0,
        "unexplained_share": 0.01,
        "notes": [],
    }
    return Findings(**{**given, **fields})  # type: ignore[arg-type]


def section(text: str, title: str) -> str:
    body = text.split(f"{title}\n{'=' * len(title)}\n")[1]
    return body.split("\n\n")[0]


def prose(text: str) -> str:
    """The report's text without line breaks."""
    return " ".join(text.split())


def answers(text: str) -> str:
    return section(text, "Delays by other requests")


def test_the_answer_comes_first_and_in_a_sentence() -> None:
    text = report_text(found(pair(CHAT, BATCH, 0.63)))
    assert text.startswith("Audit of access.log\n")
    assert "2026-03-01 12:00:00 to 13:00:00 UTC (60 minutes)" in text
    assert "2,000 requests of 2 tenants on 1 replica." in text
    assert answers(text).splitlines() == [
        "1. Tenant 3f9a0c61d2b4 (batch) delays tenant c0ffee001122 (high): "
        "63 % of its p99 TTFT of 4.1 s.",
        "   In total, its 1,000 streams were delayed by 512 s, 12 % of the sum of their TTFT.",
        "   Without others its p99 would be about 1.4 s.",
        "No other delay is 5 % or more of a p99 TTFT.",
    ]


def test_without_a_large_delay_no_causer_is_named() -> None:
    text = report_text(found(pair(CHAT, BATCH, 0.02)))
    assert answers(text).splitlines() == [
        "None: no delay by others is 5 % or more of a p99 TTFT.",
        "Largest delay: 2.0 % of the p99 TTFT of tenant c0ffee001122 (high), "
        "by tenant 3f9a0c61d2b4 (batch).",
    ]


def test_a_victim_with_few_streams_is_not_reported() -> None:
    rare = replace(CHAT, ttft=parts(requests=19))
    text = report_text(found(pair(rare, BATCH, 0.9), parties=[rare, BATCH]))
    assert answers(text).startswith("None")


def test_pairs_are_sorted_by_delay_and_limited_by_top() -> None:
    third = party("aa", "low")
    pairs = [
        pair(third, BATCH, 0.9, delay_s=5.0),
        pair(CHAT, BATCH, 0.6, delay_s=500.0),
        pair(CHAT, third, 0.3, delay_s=50.0),
    ]
    text = answers(report_text(found(*pairs, parties=[CHAT, BATCH, third]), top=2))
    lines = [line for line in text.splitlines() if line[:2] in ("1.", "2.", "3.")]
    assert [line[:19] for line in lines] == ["1. Tenant 3f9a0c61d", "2. Tenant aa (low) "]
    assert text.count("Without others its") == 1
    assert "... and 1 more such pairs; --top 3 shows them all." in text


def test_a_tenant_that_delays_itself_is_reported_separately() -> None:
    text = report_text(found(pair(BATCH, BATCH, 0.8)))
    assert answers(text).startswith("None")
    assert "Tenant 3f9a0c61d2b4 (batch) delays itself: 80 % of its p99 TTFT" in text


def test_bursts_and_slow_replicas_are_reported() -> None:
    loud = replace(BATCH, at_once_peak=40, at_once_mean=2.0)
    text = report_text(
        found(
            pair(CHAT, loud, 0.5),
            parties=[CHAT, loud],
            replicas=[
                replica("r0"),
                replica("r1", unexplained_share=0.4, failures={"replica_reset": 7, "x": 2, "y": 1}),
            ],
        )
    )
    assert "Tenant 3f9a0c61d2b4 (batch) sends bursts: 40 requests at once" in text
    assert "Tenant c0ffee001122 (high) sends bursts" not in text
    assert "r1: the log does not explain 40 % of its times to first token (fleet: 1.0 %)" in text
    assert "r1: 10 of 1,000 attempts failed: 7 replica_reset, 2 x, 1 others." in text
    assert "r0: the log" not in text


def test_what_the_queue_cost_each_class() -> None:
    assert "Queue and replicas" not in report_text(found())
    high = QueueFinding(
        name="high", requests=1500, waited=300, in_vain=0, wait_p50_s=0.02, wait_p99_s=0.4
    )
    batch = QueueFinding(
        name="batch", requests=500, waited=0, in_vain=0, wait_p50_s=None, wait_p99_s=None
    )
    text = prose(section(report_text(found(queue=[high, batch])), "Queue and replicas"))
    assert text == (
        "Class high: 300 of 1,500 requests waited in the router's queue, half of them 20 ms or "
        "less, the p99 400 ms; 0 were never sent."
    )


def test_missing_knowledge_is_reported() -> None:
    text = prose(report_text(found(known=0.3, notes=["Something is lacking."], failed=20)))
    assert "well known for 30 % of the streams only" in text
    assert "- Something is lacking." in text
    assert "20 of them failed because of the fleet (1 %)." in text
    assert "an estimate" in text and "hedgerow replay" in text
    assert "well known" not in report_text(found(known=0.95))


def test_names_from_outside_stay_on_their_line() -> None:
    evil = party("x\n\x1b[31m" + "y" * 500, label="client x\n\x1b[31m" + "y" * 500)
    text = report_text(found(pair(CHAT, evil, 0.5), parties=[CHAT, evil]))
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 140
    assert answers(text).startswith("1. Client x?")
