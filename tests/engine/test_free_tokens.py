"""A real engine that merges eight tokens into an event: no way to hide tokens works.

The engine's own totals of prompt and generated tokens are compared with the router's counts for the
tenant, for each way of `tests/harness/free_tokens.py`. `make prove-tenants` runs only this test.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from router.config.keys import KeyLine, hash_of, line_of
from tests.addons.needed import needs
from tests.engine.machine import environment
from tests.engine.machine.fleet import MODEL, Engine, Hedgerow, configured, running
from tests.harness.free_tokens import (
    LEAST,
    NOT_ASKED,
    WAYS,
    Result,
    Totals,
    Way,
    judged,
    problems,
    spend,
)

ACME = "Authorization: Bearer acme-key"
INTERVAL = 8
IDLE_WITHIN_S = 60.0
BUDGET = 34_000  # tokens


@pytest.fixture(scope="module")
def merging(logs: Path) -> Iterator[Engine]:
    built = environment.ensure()
    engine = Engine("engine-merging", built, logs, "--stream-interval", str(INTERVAL))
    with running(engine):
        yield engine


def engine_totals(engine: Engine) -> Totals:
    engine.wait_until_idle(IDLE_WITHIN_S)
    page = httpx.get(f"{engine.url}/metrics", timeout=10.0).raise_for_status().text
    found = {"vllm:prompt_tokens_total": 0.0, "vllm:generation_tokens_total": 0.0}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name in found:
                found[sample.name] += sample.value
    prompt, output = map(int, found.values())
    return Totals(prompt, output)


def counted_totals(router: Hedgerow) -> Totals:
    found = httpx.get(f"{router.admin}/usage", timeout=10.0).raise_for_status().json()["total"]
    return Totals(found["prompt_tokens"], found["output_tokens"])


@contextmanager
def routed(engine: Engine, folder: Path, **limits: Any) -> Iterator[Hedgerow]:
    keys = folder / "keys.jsonl"
    keys.write_text(line_of(KeyLine(name="acme", hash=hash_of(b"acme-key"), **limits)) + "\n")
    config = {"replicas": [{"url": engine.url, "id": "r0"}], "keys": {"file": str(keys)}}
    with configured(config, folder) as router:
        yield router


def port_of(router: Hedgerow) -> int:
    return int(router.url.rpartition(":")[2])


def test_tokens_are_counted_whatever_a_tenant_does(merging: Engine, tmp_path: Path) -> None:
    with routed(merging, tmp_path) as router:

        async def engine() -> Totals:
            return await asyncio.to_thread(engine_totals, merging)

        async def counted() -> Totals:
            return await asyncio.to_thread(counted_totals, router)

        async def run() -> list[Result]:
            port = port_of(router)
            return [
                await judged(way, port, ACME, MODEL, INTERVAL, engine, counted)
                for way in (Way("warms up"), *WAYS)
            ]

        results = asyncio.run(run())
        print(*results, sep="\n")
        assert not problems(results)


@needs("usage")
@pytest.mark.parametrize("leaves_at", [0.5, 1.0])
def test_a_budget_is_exceeded_by_one_request_at_most(
    merging: Engine, tmp_path: Path, leaves_at: float
) -> None:
    way = Way("spends", NOT_ASKED, leaves_at=leaves_at)
    with routed(merging, tmp_path, tokens_per_day=BUDGET) as router:
        before = engine_totals(merging)
        one = asyncio.run(spend(port_of(router), way, ACME, MODEL, INTERVAL, 1))
        spent, counted = engine_totals(merging).since(before), counted_totals(router)
        print(f"spent {spent.sum} of {BUDGET}, counted {counted.sum}")
        assert BUDGET - one <= spent.sum <= BUDGET + one
        assert counted.sum >= LEAST * spent.sum
