"""Audits of logs with known waits: emulated engines, with and without a tenant that delays others.

The true delay that a tenant causes is the difference between a run with this tenant and a run
without it.
"""

from collections.abc import Iterable
from pathlib import Path
from random import Random

import msgspec
import pytest

from router.lab.audit.examine import examine
from router.lab.audit.findings import Findings, PairFinding, PartyFinding
from router.lab.emulator.core.timing import PROFILES
from router.lab.simulator.traffic import TraceError
from router.observe.log.record import Record
from tests.lab.audit.engine_logs import EPOCH, Ask, changed, played, poisson, write

TIMING = PROFILES["realistic"]
CHAT, BATCH, ELSEWHERE = "c0ffee001122", "3f9a0c61d2b4", "aa17bb28cc39"
SPAN_S = 300.0


def chat(rng: Random, rate: float = 3.0, replicas: int = 2) -> list[Ask]:
    return [
        Ask(at, rng.randint(100, 900), rng.randint(20, 120), CHAT, "high", rng.randrange(replicas))
        for at in poisson(rng, rate, 0.0, SPAN_S)
    ]


def bursts(rng: Random) -> list[Ask]:
    """Four long prompts every half minute."""
    return [
        Ask(at + 0.01 * n, rng.randint(12_000, 20_000), 20, BATCH, "batch", rng.randrange(2))
        for at in range(15, int(SPAN_S), 30)
        for n in range(4)
    ]


def elsewhere(rng: Random) -> list[Ask]:
    return [
        Ask(at, rng.randint(100, 9000), 50, ELSEWHERE, "normal", 2)
        for at in poisson(rng, 1.0, 0.0, SPAN_S)
    ]


def party(findings: Findings, name: str) -> PartyFinding:
    return next(one for one in findings.parties if one.name == name)


def pair(findings: Findings, victim: str, causer: str) -> PairFinding | None:
    return next(
        (p for p in findings.pairs if victim in p.victim and causer in p.causer),
        None,
    )


def ttfts(records: Iterable[Record], tenant: str) -> list[float]:
    return [r.ttft_ms / 1e3 for r in records if r.tenant == tenant and r.ttft_ms is not None]


def at(values: list[float], q: float) -> float:
    return sorted(values)[int(q * (len(values) - 1))]


@pytest.fixture(scope="module")
def asks() -> list[Ask]:
    rng = Random(3)
    return [*chat(rng), *bursts(rng), *elsewhere(rng)]


@pytest.fixture(scope="module")
def records(asks: list[Ask]) -> list[Record]:
    return played(asks, TIMING, 3)


@pytest.fixture(scope="module")
def findings(records: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return examine([write(tmp_path_factory.mktemp("audit") / "access.log", records)])


def test_it_names_the_causer_and_its_cost_at_p99(findings: Findings) -> None:
    costs = pair(findings, CHAT, BATCH)
    assert costs is not None
    assert costs.p99_share > 0.7
    worst = max(
        (one for one in findings.pairs if not one.itself and CHAT in one.victim),
        key=lambda one: one.p99_share,
    )
    assert worst is costs


def test_a_tenant_at_other_replicas_causes_and_suffers_nothing(findings: Findings) -> None:
    for other in (CHAT, BATCH):
        assert pair(findings, ELSEWHERE, other) is None
        assert pair(findings, other, ELSEWHERE) is None
    assert party(findings, ELSEWHERE).caused_s == 0.0
    assert party(findings, ELSEWHERE).ttft.others_s == 0.0


def test_every_second_of_every_first_token_is_accounted_for(
    records: list[Record], findings: Findings
) -> None:
    for name in (CHAT, BATCH, ELSEWHERE):
        mine = party(findings, name)
        assert mine.ttft.total_s == pytest.approx(sum(ttfts(records, name)), rel=1e-6)
        assert mine.ttft.requests == len(ttfts(records, name)) == mine.requests
    assert findings.unexplained_share < 0.01


def test_crowds_and_tokens(asks: list[Ask], findings: Findings) -> None:
    batch = party(findings, BATCH)
    assert batch.at_once_peak == 4
    assert batch.at_once_mean < 2.0
    assert (batch.at_once_peak_at - EPOCH) % 30 == pytest.approx(15.0, abs=1.0)
    prompt = sum(ask.prompt for ask in asks if ask.tenant == BATCH)
    assert batch.prompt_tokens == prompt
    assert sum(one.token_share for one in findings.parties) == pytest.approx(1.0)


def test_cached_prompts_are_charged_for_what_was_computed(tmp_path: Path) -> None:
    rng = Random(6)
    long = tuple(range(500))  # a prefix of 8,000 tokens that all requests share, computed once
    asks = chat(rng) + [
        Ask(t, 8010, 20, BATCH, "batch", rng.randrange(2), blocks=long)
        for t in poisson(rng, 0.3, 5.0, SPAN_S)
    ]
    found = examine([write(tmp_path / "a.log", played(asks, TIMING, 2))])
    batch = party(found, BATCH)
    assert batch.caused_s < 0.2 * len(asks) * TIMING.prefill_alone_s(8010)
    costs = pair(found, CHAT, BATCH)
    assert costs is None or costs.share < 0.25


def test_a_log_without_tenants_is_grouped_by_address_with_a_note(
    tmp_path: Path, records: list[Record]
) -> None:
    def nameless(record: Record) -> Record:
        return msgspec.structs.replace(
            record, tenant="", priority="", client=f"10.0.0.{record.tenant[:1]}"
        )

    found = examine([write(tmp_path / "a.log", changed(records, nameless))])
    assert (found.asked_by, found.told_by) == ("tenant", "client")
    assert any("addresses" in note for note in found.notes)
    costs = pair(found, "10.0.0.c", "10.0.0.3")
    assert costs is not None and costs.p99_share > 0.7


def test_an_old_log_without_counts_is_estimated_from_bytes(
    tmp_path: Path, records: list[Record]
) -> None:
    def old(record: Record) -> Record:
        return msgspec.structs.replace(
            record, prompt_tokens=None, output_tokens=None, cached_tokens=None, estimated_tokens=0
        )

    found = examine([write(tmp_path / "a.log", changed(records, old))])
    assert any("no engine's count" in note for note in found.notes)
    assert any("cached" in note for note in found.notes)
    costs = pair(found, CHAT, BATCH)
    assert costs is not None and costs.p99_share > 0.7


def test_the_logs_of_two_routers_are_merged(
    tmp_path: Path, records: list[Record], findings: Findings
) -> None:
    rng = Random(7)
    halves: tuple[list[Record], list[Record]] = ([], [])
    for record in records:
        halves[rng.randrange(2)].append(record)
    paths = [write(tmp_path / f"{n}.log", half) for n, half in enumerate(halves)]
    both = examine(paths)
    assert both.pairs == findings.pairs
    assert both.parties == findings.parties
    assert not any("out of" in note or "too far" in note for note in both.notes)


def test_two_logs_in_one_file_are_noticed(tmp_path: Path, records: list[Record]) -> None:
    found = examine([write(tmp_path / "a.log", [*records, *records])])
    assert any("joins the logs of several routers" in note for note in found.notes)


def test_failures_by_replica(tmp_path: Path, records: list[Record]) -> None:
    def retried(record: Record) -> Record:
        ms = record.attempts[0][3]
        return msgspec.structs.replace(
            record,
            duration_ms=record.duration_ms + 5.0,
            ttft_ms=(record.ttft_ms or 0.0) + 5.0,
            attempts=[
                ("r9", "primary", "connect_failed", 5.0),
                (record.replica, "retry", "ok", ms),
            ],
        )

    lines = [retried(r) if n % 10 == 0 else r for n, r in enumerate(records)]
    gone = Record(
        ts=EPOCH + 1.0,
        id="x",
        kind="chat",
        reason="replica_reset",
        status=502,
        tenant=CHAT,
        priority="high",
        attempts=[("r9", "primary", "replica_reset", 5.0)],
        duration_ms=5.0,
    )
    left = msgspec.structs.replace(
        gone, reason="client_gone", attempts=[("r1", "primary", "client_gone", 5.0)]
    )
    found = examine([write(tmp_path / "a.log", [gone, left, *lines])])
    nine = next(one for one in found.replicas if one.name == "r9")
    count = len(lines[::10])
    assert nine.failures == {"connect_failed": count, "replica_reset": 1}
    assert nine.attempts == count + 1
    others = [one for one in found.replicas if one.name != "r9"]
    assert all(one.failures == {} for one in others)
    assert found.failed == 1
    assert party(found, CHAT).failed == 1
    assert party(found, CHAT).ttft.router_s > 0.0


def test_many_tenants_cost_no_more_than_a_few(tmp_path: Path) -> None:
    rng = Random(9)
    asks = [
        Ask(t, rng.randint(50, 500), 20, f"{rng.randrange(3000):012x}", "low", rng.randrange(2))
        for t in poisson(rng, 8.0, 0, SPAN_S)
    ] + bursts(rng)
    found = examine([write(tmp_path / "a.log", played(asks, TIMING, 2))], named=5)
    assert len(found.parties) == 6
    assert sum(one.requests for one in found.parties) <= len(asks)
    costs = pair(found, "all others (low)", BATCH)
    assert costs is not None and costs.p99_share > 0.7
    assert found.parties[0].name in (BATCH, "all others")


def test_progress_goes_from_nothing_to_all(tmp_path: Path, records: list[Record]) -> None:
    told: list[float] = []
    examine([write(tmp_path / "a.log", records)], on_progress=told.append)
    assert told == sorted(told)
    assert told[0] < 0.6 and told[-1] == 1.0


def test_what_cannot_be_audited_is_an_error(tmp_path: Path, records: list[Record]) -> None:
    with pytest.raises(TraceError, match=":1: no answered stream"):
        examine([write(tmp_path / "one.log", [Record(ts=1.0, reason="no_replica")])])
    (tmp_path / "none.log").write_bytes(b"")
    with pytest.raises(TraceError, match="no answered stream"):
        examine([str(tmp_path / "none.log")])
    with pytest.raises(OSError, match="nowhere"):
        examine([str(tmp_path / "nowhere.log")])
    with pytest.raises(ValueError, match="named"):
        examine([write(tmp_path / "a.log", records)], named=0)


def test_waits_in_the_queue_by_class(tmp_path: Path, records: list[Record]) -> None:
    def waited(record: Record) -> Record:
        if record.priority != "batch":
            return record
        return msgspec.structs.replace(record, queue_ms=2000.0)

    left = Record(
        ts=EPOCH, id="x", kind="chat", reason="queue_timeout", priority="batch", queue_ms=9e3
    )
    assert examine([write(tmp_path / "none.log", records)]).queue == []
    found = examine([write(tmp_path / "a.log", [left, *changed(records, waited)])])
    assert [one.name for one in found.queue] == ["high", "normal", "batch"]
    high, _, batch = found.queue
    assert (high.waited, high.wait_p50_s, high.in_vain) == (0, None, 0)
    assert (batch.waited, batch.in_vain) == (batch.requests, 1)
    assert batch.wait_p50_s == pytest.approx(2.0, rel=0.02)


def test_the_estimate_without_others_is_close_to_the_true_value(
    asks: list[Ask], records: list[Record], findings: Findings
) -> None:
    alone = ttfts(played([ask for ask in asks if ask.tenant == CHAT], TIMING, 3), CHAT)
    seen = ttfts(records, CHAT)
    mine = party(findings, CHAT)
    assert mine.ttft_p99_s == pytest.approx(at(seen, 0.99), rel=0.1)
    assert mine.without_others_p99_s is not None
    assert at(alone, 0.99) < at(seen, 0.99) / 10  # otherwise the next assertion proves nothing
    assert mine.without_others_p99_s < 2.0 * at(alone, 0.99)
