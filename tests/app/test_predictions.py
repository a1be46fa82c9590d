"""The errors of predictions by model, and a replica's speed in plain units."""

import pytest

from router.app import predictions
from router.config.model import Health, Replica as ReplicaConfig
from router.fleet.replica import Replica
from router.observe.metrics import MODELS_MAX, OTHER


def replica(id: str, *models: str) -> Replica:
    config = ReplicaConfig(url="http://127.0.0.1:9", id=id, models=models or None)
    return Replica(config, Health(), None)


def test_a_models_error_is_the_mean_over_its_replicas() -> None:
    one, other, silent = replica("a", "m"), replica("b", "m", "n"), replica("c", "o")
    one.learned.speeds.ttft_error.add(1.2, 1.0)
    other.learned.speeds.ttft_error.add(0.6, 1.0)
    other.learned.speeds.tpot_error.add(1.1, 1.0)
    fleet = [one, other, silent]
    assert predictions.errors(fleet) == pytest.approx(
        {("m", "ttft"): 0.3, ("n", "ttft"): 0.4, ("m", "tpot"): 0.1, ("n", "tpot"): 0.1}
    )
    assert predictions.biases(fleet) == pytest.approx(
        {("m", "ttft"): -0.1, ("n", "ttft"): -0.4, ("m", "tpot"): 0.1, ("n", "tpot"): 0.1}
    )


def test_a_replica_without_models_has_an_empty_label() -> None:
    one = replica("a")
    one.learned.speeds.ttft_error.add(1.5, 1.0)
    assert predictions.errors([one]) == {("", "ttft"): 0.5}


def test_models_beyond_the_limit_share_a_label() -> None:
    fleet = [replica(f"r{n}", f"m{n}") for n in range(MODELS_MAX + 5)]
    for one in fleet:
        one.learned.speeds.ttft_error.add(1.5, 1.0)
    found = predictions.errors(fleet)
    assert len(found) == MODELS_MAX + 1
    assert found[OTHER, "ttft"] == 0.5


def test_a_replicas_report_has_plain_units() -> None:
    one = replica("a", "m")
    one.speed.base_s, one.speed.token_s, one.speed.step_s = 0.05, 1e-4, 0.02
    report = predictions.report(one)
    assert report["is_known"] is False
    assert report["ttft_ms"]["base"] == pytest.approx(50.0)
    assert report["ttft_ms"]["per_1000_tokens"] == pytest.approx(100.0)
    assert report["tpot_ms"]["base"] == pytest.approx(20.0)
    assert report["error_percent"] == {"ttft": None, "tpot": None, "step": None}
    one.learned.speeds.ttft_error.add(1.2, 1.0)
    report = predictions.report(one)
    assert report["error_percent"]["ttft"] == pytest.approx(20.0)
    assert report["bias_percent"]["tpot"] is None
