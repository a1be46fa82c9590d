"""The Grafana dashboard in deploy/ shows metrics that a running router exposes."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from router.app import predictions
from tests.app.observe.expressions import problems
from tests.faults.process.metrics import scrape
from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, token
from tests.harness.queueing import waiting
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import running, scenario
from tests.places import ROOT

FOLDER = ROOT / "deploy" / "grafana"


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((FOLDER / "hedgerow.json").read_text())["panels"]
    return found


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel.get("targets", [])]


@scenario
async def test_a_running_router_exposes_all_that_it_shows() -> None:
    go = asyncio.Event()
    lost: list[str] = []

    async def behave(connection: ReplicaConnection) -> None:
        while request := await connection.recv_request():
            if not lost:
                lost.append(request.target)
                connection.rst()
                return
            await go.wait()
            await connection.send(SSE_HEAD, chunk(token("a")), chunk(token("b", "stop")))
            await connection.send(chunk(DONE), LAST_CHUNK)

    # One replica is down, the first attempt fails, and the last request has to wait.
    dead = "http://127.0.0.1:9"
    async with running(dead, behave, behave, replica={"max_inflight": 1}) as router:
        go.set()
        while not predictions.errors(router.app.parts.fleet.replicas.values()):
            assert (await router.ask(chat(stream=True), "POST")).complete
        go.clear()
        asked = [asyncio.create_task(router.ask(chat(stream=True), "POST")) for _ in range(3)]
        await eventually(lambda: waiting(router) == 1, "a waiting request")
        go.set()
        assert all(answer.complete for answer in await asyncio.gather(*asked))
        serving = [router.app.parts.fleet.replicas[name] for name in ("r1", "r2")]
        await eventually(
            lambda: all(replica.kv_polled is not None for replica in serving), "a poll of each"
        )
        samples = set(await scrape(router.app.admin_port))
    for expr in expressions():
        assert problems(expr, samples) == [], expr


def test_each_legend_has_labels_that_its_expression_keeps() -> None:
    for panel in panels():
        for target in panel.get("targets", []):
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                grouped = re.findall(r"\bby \(([^)]*)\)", target["expr"])
                kept = [re.findall(r"\w+", words) for words in grouped]
                assert all(label in words for words in kept), panel["title"]


def test_panels_have_their_own_place_and_the_provisioned_source() -> None:
    sources = yaml.safe_load((FOLDER / "datasources.yaml").read_text())["datasources"]
    used = {
        target["datasource"]["uid"] for panel in panels() for target in panel.get("targets", [])
    }
    assert used == {source["uid"] for source in sources}
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not taken & cells, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in panels()}) == len(panels())


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_promtool_accepts_every_expression(tmp_path: Path) -> None:
    """As recording rules, with values for the variables of Grafana."""
    rules = [
        {
            "record": f"panel:{n}",
            "expr": expr.replace("$__rate_interval", "1m").replace("$job", ".*"),
        }
        for n, expr in enumerate(expressions())
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout
