"""End to end: a dozen requests measured and simulated; and errors of the command line."""

import pytest

from bench.fleet import engines
from bench.fleet.run import Stage
from bench.fleet.script import Conversation, Script, Turn
from bench.fleet.truth import compare, simulated
from bench.fleet.truth.__main__ import main
from bench.fleet.truth.compare import CASES, idle
from bench.fleet.truth.figures import figures
from router.lab.overhead.processes import Orderly, Placement


def test_a_dozen_requests_both_ways() -> None:
    # one engine: the cached tokens do not depend on the order
    spec = engines.Spec(count=1, groups=8)
    system = "One system prompt for all, " * 40
    talks = tuple(
        Conversation(0.4 + 0.1 * n, system, (Turn(f"{n} asks", 4), Turn("and asks again", 4, 0.01)))
        for n in range(6)
    )
    script = Script(talks, 0.2, 20.0)
    with Orderly("bench.fleet.load") as load:
        run = compare.play(Stage(spec, Placement(), load), script, "least_load")
    real = figures(run.played, slo_s=10.0)
    model = figures(simulated.play(script, spec, "least_load"), slo_s=10.0)
    assert (real["failed"], model["failed"]) == (0.0, 0.0)
    assert (real["in SLO"], model["in SLO"]) == (100.0, 100.0)
    assert real["hit rate"] == pytest.approx(model["hit rate"])
    assert model["hit rate"] and model["hit rate"] > 50.0
    for name in ("TTFT p50", "TPOT p50"):  # a busy machine is slower than the model, never faster
        assert real[name] and model[name] and real[name] >= 0.9 * model[name], (real, model)
    assert run.router_cpu > 0.0 and run.engines_cpu > 0.0 and run.others_cpu >= 0.0


def test_single_requests_do_not_wait() -> None:
    spec = CASES["chat"].spec
    played = simulated.play(idle(8, seed=2), spec, "kv_aware")
    world = simulated.scenario(spec, "kv_aware", 1)
    for record in played["records"]:
        alone = world.timing.prefill_alone_s(record["prompt_tokens"])
        assert record["ttft"] == pytest.approx(alone + 2 * world.network_s)
    assert len({record["prompt_tokens"] for record in played["records"]}) == 8


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--workload", "chat,none"], "unknown workload 'none'; known: chat, shared"),
        (["--policy", "none"], "unknown policy 'none'"),
        (["--workload", ""], "no workload"),
    ],
)
def test_invalid_arguments_are_reported(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert problem in capsys.readouterr().err
