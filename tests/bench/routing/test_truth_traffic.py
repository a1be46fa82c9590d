"""A script is the same workload for an emulated engine over HTTP and for a simulated one."""

import socket
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from aiohttp import web

from bench.fleet import engines, workloads
from bench.fleet.player import Player
from bench.fleet.script import Conversation, Script, Turn
from bench.fleet.truth import simulated
from bench.fleet.truth.simulated import ScriptTraffic
from router.core.build import is_compiled
from router.lab.emulator.engine import Engine
from router.lab.emulator.http.job import Job
from router.lab.emulator.http.server import make_app
from router.lab.emulator.settings import EngineSettings
from router.lab.simulator.engine import SimulatedEngine
from router.lab.simulator.exchange import SimulatedAttempt
from router.lab.simulator.traffic import Arrival
from tests.harness.running import scenario

SPEC = engines.Spec(count=2, groups=8)


class Seen(NamedTuple):
    """The parts of a request that an engine gets."""

    prompt_tokens: int
    output_tokens: int
    block_hashes: tuple[int, ...]


def talks() -> Script:
    """Several turns, one system prompt for all, odd lengths, multi-byte letters."""
    system = "Du bist höflich. " * 9
    return Script(
        (
            Conversation(0.0, system, (Turn("eins", 5), Turn("zwei ✓" * 40, 33, 0.01))),
            Conversation(0.01, "", (Turn("x" * 301, 1),)),
            Conversation(0.02, system, tuple(Turn(f"{n} noch" * 30, 17, 0.01) for n in range(4))),
        ),
        0.0,
        20.0,
    )


def made() -> Script:
    """The beginning of each workload, sent at once and without think time."""
    size = workloads.Size.quick()
    found: list[Conversation] = []
    for make in workloads.WORKLOADS.values():
        found += make(20.0, 3, size).conversations[:5]
    hasty = [
        Conversation(
            0.0, one.system, tuple(Turn(turn.text, turn.output_tokens) for turn in one.turns[:3])
        )
        for one in found
    ]
    return Script(tuple(hasty), 0.0, 20.0)


async def over_http(script: Script, monkeypatch: pytest.MonkeyPatch) -> list[Seen]:
    """The requests that an emulated engine's core gets while a player plays the script."""
    seen: list[Seen] = []
    submit = Engine.submit

    def listen(engine: Engine, job: Job) -> None:
        seen.append(Seen(job.prompt_tokens, job.output_tokens, tuple(job.block_hashes)))
        submit(engine, job)

    monkeypatch.setattr(Engine, "submit", listen)
    engine = Engine(
        EngineSettings(
            models=(engines.MODEL,),
            profile="instant",
            num_blocks=SPEC.blocks,
            block_size=engines.BLOCK_TOKENS,
            max_model_len=SPEC.blocks * engines.BLOCK_TOKENS,
        )
    )
    runner = web.AppRunner(make_app(engine), handler_cancellation=True)
    await runner.setup()
    try:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            await web.SockSite(runner, listening).start()
            port = listening.getsockname()[1]

            async def count() -> list[dict[str, float]]:
                return []

            played = await Player(script, "127.0.0.1", port, engines.MODEL, count).play()
    finally:
        await runner.cleanup()
        engine.close()
    assert [r["error"] for r in played["records"] if r["error"]] == []
    return seen


def in_the_simulation(script: Script, monkeypatch: pytest.MonkeyPatch) -> list[Seen]:
    """The requests that simulated engines get."""
    seen: list[Seen] = []
    send = SimulatedEngine.send

    def listen(engine: SimulatedEngine, io: SimulatedAttempt) -> None:
        seen.append(Seen(io.prompt_tokens, io.output_tokens, tuple(io.block_hashes)))
        send(engine, io)

    monkeypatch.setattr(SimulatedEngine, "send", listen)
    simulated.play(script, SPEC, "least_load")
    return seen


@pytest.mark.skipif(
    is_compiled(), reason="compiled code calls its own methods directly: nobody can listen"
)
@pytest.mark.parametrize("make", [talks, made])
@scenario
async def test_engines_see_the_same_tokens_and_blocks(make: Any) -> None:
    script = make()
    with pytest.MonkeyPatch.context() as patch:
        measured = await over_http(script, patch)
    with pytest.MonkeyPatch.context() as patch:
        in_vain = in_the_simulation(script, patch)
    assert len(measured) == sum(len(one.turns) for one in script.conversations)
    assert sorted(in_vain) == sorted(measured)
    assert any(len(one.block_hashes) > 2 for one in measured)


def follow_all(script: Script, seconds: float) -> list[Arrival]:
    """Every arrival, if each answer took this long."""
    traffic = ScriptTraffic(script, "script")
    found: list[Arrival] = []
    due = list(traffic)
    while due:
        arrival = due.pop(0)
        found.append(arrival)
        due += traffic.follow(arrival, arrival.at + seconds)
    return found


def test_later_turns_come_after_the_time_to_think() -> None:
    script = Script(
        (Conversation(1.0, "", (Turn("a", 2), Turn("b", 2, 0.5), Turn("c", 2, 0.25))),), 0.0, 9.0
    )
    found = follow_all(script, 2.0)
    assert [one.at for one in found] == [1.0, 3.5, 5.75]
    assert len({one.number for one in found}) == 3


def test_the_simulated_engine_is_the_one_that_is_started() -> None:
    """The options of the emulated fleet match the scenario."""
    from argparse import ArgumentParser

    from router.lab.emulator import command

    parser = ArgumentParser()
    command.add_arguments(parser)
    (settings,) = command.settings_from(parser.parse_args(SPEC.options()))
    world = simulated.scenario(SPEC, "kv_aware", 1)
    assert world.core == replace(settings.core_config(), priority_scheduling=False)
    assert settings.core_config().priority_scheduling is False
    assert world.timing == settings.timing()
