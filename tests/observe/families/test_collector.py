"""Rendering: valid in both formats, complete, only the router's own families, bounded size."""

import asyncio
import gzip
import platform
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from router.app import families
from router.core.build import VERSION, build_kind
from router.core.errors import Reason
from router.intake.routes import KINDS
from router.observe.families import (
    hedge_families,
    process_families,
    request_families,
)
from router.observe.families.collector import PIECE_SAMPLES, Collector
from router.observe.families.family import COUNTER, GAUGE, HISTOGRAM, INFO, Family, Source
from router.observe.families.request_families import NAMED
from router.observe.hedge_counts import Cause, HedgeCounts, Refusal
from router.observe.metrics import REPLICAS_MAX, UNCLASSED, Metrics
from tests.observe.helpers import run

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def broken() -> float:
    raise RuntimeError("not now")


OWN: tuple[Family[None], ...] = (
    Family("replicas", GAUGE, "Replicas.", lambda _: {"up": 2, "down": 1}, ("state",)),
    Family("files", GAUGE, "Files.", lambda _: 1_048_576),
    Family("lines_dropped", COUNTER, "Lines.", lambda _: 5),
    Family("lag_seconds", GAUGE, "Not known now.", lambda _: None),
)
GAUGES = Source(OWN, lambda: None)


def shown(*own: Family[None]) -> Source[None]:
    return Source(own, lambda: None)


def used() -> Metrics:
    metrics = Metrics()
    metrics.finished("chat", Reason.OK, 200, 0.2, 0.02, 10, 100, "llama")
    metrics.finished("chat", Reason.REPLICA_RESET, 502, 3.0, None, 10, 0, "llama")
    metrics.attempt("gpu-1:8000", "primary", Reason.REPLICA_RESET)
    metrics.attempt("gpu-2:8000", "retry", Reason.OK)
    metrics.retries(Reason.REPLICA_RESET)
    added = Family("added", COUNTER, "Of an addon.", lambda taken: taken, ("outcome",))
    metrics.added["an addon"] = Source((added,), lambda: {"good": 1})
    metrics.ejections("gpu-1:8000")
    metrics.reloads.count(True, "c0ffee")
    metrics.client_connections = 9
    return metrics


def render(collector: Collector, accept: str = "") -> tuple[str, str]:
    out: list[str] = []

    async def main() -> None:
        body, content_type = await collector.render(accept)
        out.extend((body.decode(), content_type))

    run(main())
    return out[0], out[1]


def samples(families: list[Metric]) -> dict[tuple[str, ...], float]:
    """All samples: (name, label values in the order of the labels' names) -> value."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.mark.parametrize("accept", ["", "text/plain;version=0.0.4", OPENMETRICS])
def test_both_formats_parse_and_agree(accept: str) -> None:
    text, content_type = render(Collector(used(), GAUGES), accept)
    is_open = accept == OPENMETRICS
    assert content_type.startswith("application/openmetrics" if is_open else "text/plain")
    families = list(parse_openmetrics(text) if is_open else parse_text(text))
    values = samples(families)
    assert values["hedgerow_requests_total", "chat", "ok", "200"] == 1
    assert values["hedgerow_requests_total", "chat", "replica_reset", "502"] == 1
    assert values["hedgerow_request_duration_seconds_bucket", "chat", "0.25"] == 1
    assert values["hedgerow_request_duration_seconds_bucket", "chat", "+Inf"] == 2
    assert values["hedgerow_request_duration_seconds_count", "chat"] == 2
    assert values["hedgerow_request_duration_seconds_sum", "chat"] == 3.2
    assert values["hedgerow_request_ttft_seconds_count", "chat"] == 1
    assert values["hedgerow_request_body_bytes_total", "chat"] == 20
    assert values["hedgerow_response_body_bytes_total", "chat"] == 100
    assert values["hedgerow_model_requests_total", "", "llama", ""] == 2
    assert values["hedgerow_attempts_total", "retry", "ok", "gpu-2:8000"] == 1
    assert values["hedgerow_retries_total", "replica_reset"] == 1
    assert values["hedgerow_added_total", "good"] == 1
    assert values["hedgerow_replica_ejections_total", "gpu-1:8000"] == 1
    assert values["hedgerow_client_connections_accepted_total",] == 9
    assert values["hedgerow_config_info", "c0ffee"] == 1
    assert values["hedgerow_config_reloads_total", "ok"] == 1
    assert values["hedgerow_replicas", "up"] == 2
    assert values["hedgerow_files",] == 1_048_576
    assert values["hedgerow_lines_dropped_total",] == 5
    assert values["process_cpu_seconds_total",] > 0
    assert values["process_resident_memory_bytes",] > 1_000_000
    assert values["process_virtual_memory_bytes",] > values["process_resident_memory_bytes",]
    assert values["process_start_time_seconds",] <= time.time()
    assert values["process_max_fds",] >= values.get(("process_open_fds",), 1) > 0
    assert values["hedgerow_build_info", build_kind(), platform.python_version(), VERSION] == 1
    assert not any(name.startswith("hedgerow_lag") for name, *_ in values)  # the lag is unknown
    for family in families:
        assert family.name.startswith(("hedgerow_", "process_"))
        assert family.documentation
        assert family.type != "unknown"


# The metric of each number of `HedgeCounts`, without the prefix `hedgerow_`.
OF_HEDGING = {
    "fired": "hedges_fired_total",
    "won": 'hedges_ended_total{outcome="won"}',
    "lost": 'hedges_ended_total{outcome="lost"}',
    "failed": 'hedges_ended_total{outcome="failed"}',
    "idle": "hedges_idle_total",
    "idle_tokens": "hedge_idle_tokens_total",
    "fired_tokens": "hedge_tokens_total",
    "returned_tokens": "hedge_returned_tokens_total",
    "wasted_tokens": "hedge_wasted_tokens_total",
    "saved_s": "hedge_saved_seconds_total",
    "suspected": "hedge_suspects_total",
    "policy_errors": "hedge_policy_errors_total",
    "budget_tokens": "hedge_budget_tokens",
    "hedgeable_share": "hedgeable_ratio",
    "quantile": "hedge_quantile",
    "would_fire": "hedge_dry_run_fired_total",
    "would_fire_tokens": "hedge_dry_run_tokens_total",
    "would_win": "hedge_dry_run_won_total",
    "would_save_s": "hedge_dry_run_saved_seconds_total",
}


def test_each_number_of_hedging_has_its_metric() -> None:
    counts = HedgeCounts()
    numbers = [name for name, value in vars(counts).items() if not isinstance(value, dict)]
    for value, name in enumerate(numbers, 1):
        setattr(counts, name, value)
    counts.suppressed[Refusal.BUDGET] = 100
    counts.causes[Cause.LATE] = 200
    lines = render(Collector(Metrics(), Source(hedge_families.FAMILIES, lambda: counts)))[0].split(
        "\n"
    )
    for value, name in enumerate(numbers, 1):
        # Tokens that were given back count as tokens of copies, too.
        due = value + counts.returned_tokens if name == "fired_tokens" else value
        assert f"hedgerow_{OF_HEDGING[name]} {float(due)}" in lines
    assert 'hedgerow_hedges_suppressed_total{reason="budget"} 100.0' in lines
    assert 'hedgerow_hedge_causes_total{cause="late"} 200.0' in lines


def test_times_by_class() -> None:
    """First contents of streams; durations of requests that succeeded."""
    metrics = Metrics()
    for urgency in ("critical", "high", "high", UNCLASSED, "", "an invention"):
        metrics.finished("chat", Reason.OK, 200, 3.0, 0.02, 10, 100, "llama", urgency)
    metrics.finished("chat", Reason.CLIENT_GONE, 200, 3.0, None, 10, 100, "llama", "high")
    metrics.finished("chat", Reason.OK, 200, 3.0, 0.2, 10, 100, "llama", "low", False)  # whole
    values = samples(list(parse_text(render(Collector(metrics))[0])))

    def counts(what: str) -> dict[str, float]:
        name = f"hedgerow_class_{what}_seconds_count"
        return {key[1]: value for key, value in values.items() if key[0] == name and value}

    assert counts("ttft") == {"critical": 1, "high": 2, "none": 1}
    assert counts("duration") == {"critical": 1, "high": 2, "none": 1, "low": 1}
    assert values["hedgerow_class_ttft_seconds_bucket", "high", "0.025"] == 2
    assert values["hedgerow_class_ttft_seconds_bucket", "high", "0.01"] == 0
    assert values["hedgerow_class_ttft_seconds_sum", "high"] == pytest.approx(0.04)
    assert values["hedgerow_class_duration_seconds_sum", "high"] == 6.0
    assert values["hedgerow_request_ttft_seconds_count", "chat"] == 7
    assert values["hedgerow_request_duration_seconds_count", "chat"] == 8


def test_several_labels() -> None:
    drops: Family[None] = Family(
        "drops", COUNTER, "Drops.", lambda _: {("low", "full"): 3.0}, ("class", "reason")
    )
    text, _ = render(Collector(Metrics(), shown(drops)))
    assert 'hedgerow_drops_total{class="low",reason="full"} 3.0' in text


def test_the_pieces_are_what_one_rendering_gives() -> None:
    metrics = used()
    for number in range(3 * PIECE_SAMPLES):
        metrics.attempt(f"r{number}", "primary", Reason.OK)
    collector = Collector(metrics, GAUGES)

    def stable(text: str) -> list[str]:
        return [line for line in text.splitlines() if not line.startswith("process_")]

    assert stable(render(collector)[0]) == stable(generate_latest(collector.registry).decode())


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_a_compressed_page_is_the_same_page(accept: str) -> None:
    metrics = used()
    for number in range(3 * PIECE_SAMPLES):
        metrics.attempt(f"r{number}", "primary", Reason.OK)
    collector = Collector(metrics, GAUGES)

    async def main() -> None:
        plain, content_type = await collector.render(accept)
        zipped, other_type = await collector.render(accept, is_zipped=True)
        assert content_type == other_type
        assert len(zipped) < len(plain) / 4
        pages = [page.decode().splitlines() for page in (plain, gzip.decompress(zipped))]
        assert pages[0][-1] == pages[1][-1]
        assert [line for line in pages[0] if not line.startswith("process_")] == [
            line for line in pages[1] if not line.startswith("process_")
        ]

    run(main())


def test_a_gauge_that_raises_costs_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    fails: Family[None] = Family("fails", GAUGE, "Fails.", lambda _: broken())
    works: Family[None] = Family("works", GAUGE, "Works.", lambda _: 3)
    text, _ = render(Collector(used(), shown(fails, works)))
    assert "hedgerow_fails" not in text
    assert "hedgerow_works 3.0" in text
    assert [record.getMessage() for record in caplog.records] == ["metric unreadable"]


def test_a_hundred_thousand_names_stay_under_two_megabytes() -> None:
    metrics = Metrics()
    for number in range(100_000):
        name = f"tenant-{number}/model-{number}-{'x' * 100}"
        kind = KINDS[number % len(KINDS)]
        metrics.finished(kind, Reason.OK, 200 + number % 400, 0.1, 0.1, 1, 1, name)
        metrics.finished(name, Reason.BAD_JSON, 400, 0.1, 0.1, 1, 1, name)
        metrics.attempt(name, name, Reason.OK)
        metrics.counted_tokens(name, "", "", 1, 1, 1, name)
        metrics.ejections(name)
        metrics.usage.count(f"{number}-{'t' * 90}", "low", None, 100, 10, 10, False)
    names = {f"replica-{number}": 1.0 for number in range(100_000)}
    text, _ = render(
        Collector(metrics, shown(Family("held", GAUGE, "Held.", lambda _: names, ("replica",))))
    )
    assert len(text.encode()) < 2_000_000
    assert f'held{{replica="other"}} {100_000 - REPLICAS_MAX}' in text
    others = 10 * (100_000 - NAMED)
    assert f'tenant_tokens_total{{kind="output",tenant="(other)"}} {others}.0' in text


def test_hostile_names_still_render() -> None:
    metrics = Metrics()
    for name in ("\ud800", "\udfff", 'a"b\\c\nd', "", "é" * 1000):
        metrics.finished("chat", Reason.OK, 200, 0.1, None, 0, 0, name)
        metrics.attempt(name, "primary", Reason.OK)
    metrics.reloads.config_hash = "\udc80"
    for accept in ("", OPENMETRICS):
        text, _ = render(Collector(metrics), accept)
        values = samples(list(parse_openmetrics(text) if accept else parse_text(text)))
        assert (
            values["hedgerow_model_requests_total", "", "?", ""] == 2
        )  # two models that look alike
        assert values["hedgerow_model_requests_total", "", 'a"b\\c\nd', ""] == 1


def test_the_loop_runs_during_a_scrape() -> None:
    metrics = Metrics()
    for number in range(1000):
        metrics.attempt(f"r{number}", "primary", Reason.OK)
    turns = 0

    async def main() -> None:
        nonlocal turns
        scrape = asyncio.ensure_future(Collector(metrics, GAUGES).render())
        while not scrape.done():
            turns += 1
            await asyncio.sleep(0)
        await scrape

    run(main())
    assert turns > 1000 // PIECE_SAMPLES


def test_declarations() -> None:
    declared: list[Family[Any]] = [
        *request_families.FAMILIES,
        *request_families.TENANTS,
        *hedge_families.FAMILIES,
        *process_families.FAMILIES,
        *families.FLEET,
        *families.QUEUE,
        *families.QUEUE_COUNTS,
        *families.LIFECYCLE,
    ]
    for family in declared:
        assert re.fullmatch("[a-z][a-z0-9_]*", family.name)
        assert not family.name.endswith("_total"), "prometheus_client adds it"
        assert family.help.endswith("."), family.name
        assert family.kind in (COUNTER, GAUGE, HISTOGRAM, INFO)
    assert len({family.name for family in declared}) == len(declared)


def test_the_start_of_the_process_does_not_move() -> None:
    first, second = (
        samples(list(parse_text(render(Collector(Metrics()))[0])))["process_start_time_seconds",]
        for _ in range(2)
    )
    assert first == second
    uptime_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert time.time() - uptime_s - 1 < first < time.time()


def test_scrapes_at_the_same_time_are_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port without a token may get many of them, and may lose a client in between."""
    collector, count = Collector(used()), 0
    collect = collector.collect

    def counted() -> Iterator[Metric]:
        nonlocal count
        count += 1
        yield from collect()

    monkeypatch.setattr(collector, "collect", counted)

    async def scrapes() -> None:
        found = [asyncio.ensure_future(collector.render()) for _ in range(20)]
        zipped = asyncio.ensure_future(collector.render("", True))
        await asyncio.sleep(0)
        found.pop(0).cancel()
        (text,) = {body for body, _ in await asyncio.gather(*found)}
        assert gzip.decompress((await zipped)[0]).startswith(text[:100])
        assert count == 2
        await collector.render()
        assert count == 3

    run(scrapes())
