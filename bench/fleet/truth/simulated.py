"""Plays a script in the simulator. The result has the format of a run over HTTP.

Must never differ from the run over HTTP in anything that can be equal: fleet, timing, KV cache
size, policy, polls, deadlines and arrivals. `differences` lists what cannot be equal.

`Outcomes`: converts simulated requests to records like those of the load generator.

`ScriptTraffic`, `ScriptedTurn`: turns a script into simulated requests, with the tokens that
engines would read over HTTP.

Prompts go through the emulator's own chat template and tokenizer. Each turn contains the answers
that the emulated engines give to the earlier turns. So a turn has the same tokens and the same
block hashes as at an emulated engine over HTTP.

Must never use a fact of a request that an emulated engine does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import inf
from typing import Any

import msgspec

from bench.fleet.engines import BLOCK_TOKENS, MAX_NUM_SEQS, MODEL, Spec
from bench.fleet.player import DRAIN_S, Played, Record
from bench.fleet.script import Conversation, Script, Turn
from router.config.model import Prefix
from router.config.varied import varied
from router.core.errors import Reason
from router.lab.emulator.core.timing import CoreConfig
from router.lab.emulator.http import text
from router.lab.emulator.http.bodies import render
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import Scenario, equal
from router.lab.simulator.simulation import Simulation
from router.lab.simulator.traffic import Arrival

NOTHING = {"requests": 0.0, "queried": 0.0, "hits": 0.0, "preemptions": 0.0}


class Outcomes:
    """Records simulated requests; those that arrive within [measure_from, until) are measured."""

    def __init__(self, measure_from: float, until: float = inf) -> None:
        self.records: list[Record] = []
        self.tokens_in_window = 0
        self.served = _Served()
        self._from = measure_from
        self._until = until

    def ended(self, outcome: Outcome) -> None:
        arrival = outcome.arrival
        is_whole = outcome.reason is Reason.OK
        error = "" if is_whole else str(outcome.reason)
        if outcome.ended > self._until + DRAIN_S:
            error = "unanswered"  # the load generator would have stopped waiting
        is_measured = self._from <= arrival.at < self._until
        self.records.append(
            Record(
                due=arrival.at,
                sent=arrival.at,
                ttft=outcome.ttft_s,
                seconds=outcome.ended - arrival.at,
                prompt_tokens=arrival.prompt_tokens,
                output_tokens=arrival.output_tokens if is_whole else 0,
                measured=is_measured,
                error=error,
            )
        )
        if is_whole:
            self._count(outcome)
            if is_measured:
                self.served.add(outcome.replica, arrival.prompt_tokens, outcome.cached_tokens)

    def played(self, measured_s: float, counters: list[list[dict[str, float]]]) -> dict[str, Any]:
        """Return a dict with the same fields as the result of `Player.play`.

        `counters` are the engines' counters at the start and at the end of the measured time.
        """
        self.records.sort(key=lambda record: record.due)
        return _played(self.records, self.tokens_in_window, measured_s, counters)

    def _count(self, outcome: Outcome) -> None:
        """Count the answer's tokens in the measured time, as if its tokens were evenly spaced."""
        pace = outcome.tpot_s or 0.0
        times = (outcome.first + pace * n for n in range(outcome.arrival.output_tokens))
        self.tokens_in_window += sum(self._from <= at < self._until for at in times)


class _Served:
    """Counts measured requests and their tokens for each replica."""

    def __init__(self) -> None:
        self._by_replica: dict[str, dict[str, float]] = {}

    def add(self, replica: str, prompt: int, cached: int) -> None:
        mine = self._by_replica.setdefault(replica, dict(NOTHING))
        mine["requests"] += 1
        mine["queried"] += prompt
        mine["hits"] += cached

    def counters(self) -> list[list[dict[str, float]]]:
        """Return the counts as if the engines' counters had been read before and after the run."""
        after = list(self._by_replica.values())
        return [[NOTHING] * len(after), after]


def _played(
    records: list[Record],
    tokens_in_window: int,
    measured_s: float,
    counters: list[list[dict[str, float]]],
) -> dict[str, Any]:
    result: dict[str, Any] = msgspec.to_builtins(
        Played(records, tokens_in_window, measured_s, 0.0, counters)
    )
    return result


class ScriptTraffic:
    """The requests of a script. Each later turn arrives after the answer to the previous turn."""

    def __init__(
        self, script: Script, name: str, block_tokens: int = BLOCK_TOKENS, model: str = MODEL
    ) -> None:
        self.name = name
        self.block_tokens = block_tokens
        self._script = script
        self._model = model
        self._most_turns = max((len(one.turns) for one in script.conversations), default=1)

    def __iter__(self) -> Iterator[Arrival]:
        for number, conversation in enumerate(self._script.conversations):
            if turns := self._turns(number, conversation):
                yield turns[0]

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        """Return the conversation's next turn, due after the think time. Returns nothing if the
        script has ended by then.
        """
        assert isinstance(ended, ScriptedTurn)
        following = ended.following
        if following is None:
            return ()
        following.at = now + following.think_s
        return () if following.at >= self._script.until else (following,)

    def _turns(self, number: int, conversation: Conversation) -> list[ScriptedTurn]:
        messages = []
        if conversation.system:
            messages.append({"role": "system", "content": conversation.system})
        sizes: list[tuple[Turn, int]] = []
        whole = b""
        for turn in conversation.turns:
            messages.append({"role": "user", "content": turn.text})
            prompt = render(messages)
            answer = text.answer(prompt, turn.output_tokens, is_endless=True).output
            messages.append({"role": "assistant", "content": answer.decode()})
            sizes.append((turn, len(prompt) // text.TOKEN_BYTES))
            whole = prompt + text.pad(answer)
        # Each prompt begins with the previous prompt and answer. So the block hashes of every turn
        # are a prefix of the last turn's hashes.
        chain = tuple(text.block_hashes(whole, self.block_tokens, f"{self._model}\0"))
        turns = []
        for index, (turn, prompt_tokens) in enumerate(sizes):
            asked = prompt_tokens // self.block_tokens
            answered = (prompt_tokens + turn.output_tokens) // self.block_tokens
            name = number * self._most_turns + index
            blocks, answer_blocks = chain[:asked], chain[asked:answered]
            turns.append(
                ScriptedTurn(name, conversation.at, prompt_tokens, turn, blocks, answer_blocks)
            )
        for turn_before, turn_after in pairwise(turns):
            turn_before.following = turn_after
        return turns


class ScriptedTurn(Arrival):
    """One turn of a conversation as a simulated request, with a reference to the next turn."""

    __slots__ = ("following", "think_s")

    def __init__(
        self,
        number: int,
        at: float,
        prompt_tokens: int,
        turn: Turn,
        blocks: tuple[int, ...],
        answer_blocks: tuple[int, ...],
    ) -> None:
        super().__init__(
            number, at, prompt_tokens, turn.output_tokens, blocks, answer_blocks=answer_blocks
        )
        self.think_s = turn.think_s
        self.following: ScriptedTurn | None = None


def differences(world: Scenario) -> list[str]:
    """Describe in sentences how the simulation differs from a run over HTTP."""
    return [
        f"The simulated router knows prompts by the engines' blocks of {BLOCK_TOKENS} tokens, the "
        f"real one by {Prefix().block_bytes} bytes of JSON.",
        "The simulated router takes a token to be four bytes; the real one learns what it is.",
        "Routers draw their random numbers, and begin to poll, differently in each run over HTTP.",
        "Over HTTP the timers of emulated engines are up to 1 ms late. In the simulation a message "
        f"takes {world.network_s * 1e3:g} ms each way between router and engine, all else no time.",
    ]


def scenario(spec: Spec, policy: str, seed: int) -> Scenario:
    """Return the simulated fleet of a spec, behind a router with default settings except its
    policy. Raises ValueError for invalid sizes.
    """
    engine = spec.engine()
    core = CoreConfig(max_num_seqs=MAX_NUM_SEQS, num_blocks=spec.blocks, block_size=BLOCK_TOKENS)
    return Scenario(
        groups=equal(spec.count, core, engine.timing),
        config=varied(routing={"policy": policy}),
        sample_s=0.0,
        seed=seed,
    )


def play(script: Script, spec: Spec, policy: str, seed: int = 1) -> dict[str, Any]:
    """Play the script like `Player.play`. Raises the errors of `simulate`."""
    return play_in(scenario(spec, policy, seed), script)


def play_in(world: Scenario, script: Script) -> dict[str, Any]:
    """Play the script in the given scenario (fleet and router)."""
    outcomes = Outcomes(script.measure_from, script.until)
    simulation = Simulation(world, ScriptTraffic(script, "script", world.core.block_size), outcomes)
    before: list[dict[str, float]] = [NOTHING] * world.replicas

    def measuring_begins(_: float) -> None:
        before[:] = _counters(simulation)

    simulation.clock.at(script.measure_from, measuring_begins)
    simulation.run()
    return outcomes.played(script.until - script.measure_from, [before, _counters(simulation)])


def _counters(simulation: Simulation) -> list[dict[str, float]]:
    """The engines' counters, in the format of `engines.read_counters`."""
    return [
        {
            "requests": float(totals.requests - totals.aborted),
            "queried": float(totals.prompt_tokens),
            "hits": float(totals.cached_tokens),
            "preemptions": float(totals.preemptions),
        }
        for totals in (engine.totals() for engine in simulation.engines)
    ]
