"""Replicas of a log, in groups of equal replicas."""

from pathlib import Path

import pytest

from router.config.keys import KeyLine, line_of
from router.config.model import Config, Replica
from router.config.varied import varied
from router.core.errors import ConfigError
from router.intake.flow import Flows
from router.intake.keys import Key
from router.lab.replay.logged_fleet import REPLICAS_MAX, LoggedFleet, LoggedGroup, keys_of
from router.lab.simulator.arrival import Arrival, Logged
from router.observe.log.salt import Salter

Said = tuple[str, str, int | None, int | None]  # replica, model, slots, KV


def fleet_of(*said: Said) -> LoggedFleet:
    fleet = LoggedFleet()
    for replica, model, slots, kv_tokens in said:
        logged = Logged("ok", 1.0, replica=replica, slots=slots, kv_tokens=kv_tokens)
        fleet.add(Arrival(0, 0.0, 1, 1, model=model, logged=logged))
    return fleet


def groups(*said: Said, replicas: tuple[Replica, ...] = ()) -> list[LoggedGroup]:
    return fleet_of(*said).groups(Config(replicas=replicas))


def test_slots_that_were_learned_need_not_be_the_same() -> None:
    (group,) = groups(("a", "m", 100, 1000), ("b", "m", 97, 1000))
    assert group.replicas == ("a", "b")


def test_the_median_of_the_slots_counts_and_the_latest_cache() -> None:
    (group,) = groups(("a", "m", 4, None), ("a", "m", None, 1000), ("a", "m", 8, None))
    assert (group.slots, group.kv_tokens) == (8, 1000)
    lines = [("a", "m", slots, 1000) for slots in (None, None, None, 4, 8, 9, 8, 7, None)]
    (group,) = groups(*lines)
    assert group.slots == 8


def test_slots_that_few_lines_have_are_unknown() -> None:
    lines = [("a", "m", slots, 1000) for slots in (None, 4, 4, None, None, None)]
    (group,) = groups(*lines)
    assert group.slots is None


def test_slots_are_at_least_the_answers_in_progress() -> None:
    def slots(stated: int, answers: int) -> int | None:
        fleet = LoggedFleet()
        for number in range(answers):
            logged = Logged("ok", 9.0, ttft_s=1.0, replica="a", slots=stated)
            fleet.add(Arrival(number, 0.1 * number, 1, 1, logged=logged))
        (group,) = fleet.groups(Config())
        return group.slots

    assert slots(32, 30) == 32
    assert slots(32, 34) == 34  # an answer ends later at its client than at the engine
    assert slots(4, 9) is None
    # One after the other: 80 answers of 8 seconds, one each 0.1 seconds.
    assert slots(200, 500) == 200


def test_models_make_groups_and_replicas_that_share_one_are_a_pool() -> None:
    found = groups(
        ("a", "m", 8, 1000),
        ("b", "lora", 8, 1000),
        ("b", "m", 8, 1000),
        ("c", "other", 8, 1000),
    )
    assert [(group.replicas, group.models) for group in found] == [
        (("a", "b"), ("lora", "m")),
        (("c",), ("other",)),
    ]


def test_weight_place_and_models_come_from_the_configuration() -> None:
    told = (
        Replica(url="http://a", id="a", weight=2.0, zone="east", models=("m", "n")),
        Replica(url="http://b", id="b", max_inflight=5),
    )
    first, second = groups(("a", "m", 8, 1000), ("b", "m", 8, 1000), replicas=told)
    assert (first.like.weight, first.like.zone, first.models) == (2.0, "east", ("m", "n"))
    assert (second.like.max_inflight, second.models) == (5, ("m",))


def test_a_failed_request_does_not_show_a_model() -> None:
    fleet = fleet_of(("a", "m", 8, 1000), ("b", "n", 8, 1000))
    failed = Logged("replica_reset", 1.0, replica="a")
    fleet.add(Arrival(0, 0.0, 1, 1, model="n", logged=failed))
    assert len(fleet.groups(Config())) == 2


def test_unanswered_requests_define_no_fleet() -> None:
    fleet = LoggedFleet()
    fleet.add(Arrival(0, 0.0, 1, 1))
    fleet.add(Arrival(0, 0.0, 1, 1, logged=Logged("ok", 1.0)))
    assert fleet.groups(Config()) == []


def test_the_number_of_replicas_is_bounded() -> None:
    fleet = LoggedFleet()
    for number in range(REPLICAS_MAX + 10):
        fleet.add(Arrival(0, 0.0, 1, 1, logged=Logged("ok", 1.0, replica=f"r{number}")))
    assert len(fleet) == REPLICAS_MAX


LINES = [KeyLine(name=name, hash=f"sha256:{number:064x}") for number, name in enumerate("abc")]


def tenant(name: str, salt: str) -> str:
    """The tenant's name as the proxy writes it."""
    (line,) = [line for line in LINES if line.name == name]
    flow = Flows(Salter(salt, 0).name).of(Key(line), None, None, "10.0.0.1", None, b"")
    return flow.tenant


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text("".join(line_of(line) + "\n" for line in LINES))
    return path


def test_tenants_are_found_by_the_salt(file: Path) -> None:
    config = varied(keys={"file": str(file)}, access_log={"salt": "s"})
    tenants = {tenant("a", "s"), tenant("c", "s"), "other"}
    keys, said = keys_of(config, tenants)
    assert {name: line.name for name, line in keys.items()} == {
        tenant("a", "s"): "a",
        tenant("c", "s"): "c",
    }
    assert said == "weights and limits of 2 of 3 tenants with keys"


def test_without_the_salt_keys_cannot_be_identified(file: Path) -> None:
    keys, said = keys_of(varied(keys={"file": str(file)}), {tenant("a", "s")})
    assert not keys and said.startswith("not simulated: access_log.salt is not set")


def test_another_salt_is_noticed(file: Path) -> None:
    config = varied(keys={"file": str(file)}, access_log={"salt": "other"})
    keys, said = keys_of(config, {tenant("a", "s")})
    assert not keys and "another access_log.salt" in said


def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"keys\.file: .* cannot be read"):
        keys_of(varied(keys={"file": str(tmp_path / "none")}), set())
