"""Sizes and timing of the engines: from flags, from the log, and defaults."""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from router.config.model import Config
from router.config.varied import varied
from router.lab.replay.engine_model import EngineModel, engine_model
from router.lab.replay.flags import KV_TOKENS, SLOTS, add_arguments
from router.lab.replay.logged_fleet import LoggedGroup, read
from router.lab.replay.workers import Refused
from router.lab.simulator.scenario import NETWORK_S, Scenario, equal
from router.lab.traces import Trace
from tests.lab.replay.logs import BLOCK, CORE, TIMING, logged, traffic, write


def model(path: Path | str, *words: str, fleet: bool = True, **changes: Any) -> EngineModel:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args([str(path), *words])
    groups: list[LoggedGroup] = []
    until = float("inf")
    if fleet:
        trace = Trace(path)
        groups = read(trace, None).fleet.groups(Config())
    return engine_model(args, groups, BLOCK, until, changes.get("on_progress"))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scenario = Scenario(groups=equal(2, CORE, TIMING), sample_s=0.0)
    lines = logged(scenario, traffic(3.0, 100.0))
    return write(tmp_path_factory.mktemp("log") / "access.log", lines)


def without_sizes(log: Path, folder: Path) -> Path:
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        del line["slots"], line["kv_tokens"]
    return write(folder / "bare.log", lines)


def test_the_network_is_counted_once(log: Path) -> None:
    """Coefficients fitted to a log already include the network time."""
    assert model(log, "--calibrate").network_s == 0.0
    assert model(log).network_s == NETWORK_S


def test_a_flag_overrides_the_sizes(log: Path) -> None:
    (group,) = model(log, "--max-num-seqs", "7", "--kv-tokens", "25600").groups
    assert (group.core.max_num_seqs, group.core.num_blocks) == (7, 100)


def test_usual_sizes_where_the_log_has_none(log: Path, tmp_path: Path) -> None:
    (group,) = model(without_sizes(log, tmp_path)).groups
    assert (group.core.max_num_seqs, group.core.num_blocks) == (SLOTS, KV_TOKENS // BLOCK)


def test_the_slots_of_a_full_replica_are_inferred(tmp_path: Path) -> None:
    """An engine runs two sequences at once; further requests wait in the engine's queue."""
    tight = replace(CORE, max_num_seqs=2)
    config = varied(queue={"enabled": False}, hedging={"policy": "off"})
    scenario = Scenario(groups=equal(2, tight, TIMING), config=config, sample_s=0.0)
    path = write(tmp_path / "access.log", logged(scenario, traffic(2.5, 200.0)))
    (group,) = model(without_sizes(path, tmp_path), "--calibrate").groups
    assert group.core.max_num_seqs == 2


def test_progress_is_shown_while_a_log_is_read_and_fitted(log: Path) -> None:
    shares: list[float] = []
    model(log, "--calibrate", on_progress=shares.append)
    assert shares[-1] == 1.0 and shares == sorted(shares)
    read_shares: list[float] = []
    read(Trace(log), read_shares.append)
    assert read_shares and all(0.0 <= share <= 1.0 for share in read_shares)


def test_a_cache_smaller_than_a_block_is_refused(log: Path) -> None:
    with pytest.raises(Refused, match="at least one block, 256 tokens"):
        model(log, "--kv-tokens", "100")


def test_a_trace_without_a_fleet_has_one_group(log: Path) -> None:
    found = model(log, fleet=False)
    assert not found.is_logged and [group.replicas for group in found.groups] == [1]
