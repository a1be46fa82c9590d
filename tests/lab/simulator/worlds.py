"""Small fleets, scripted traffic and a recorder that keeps everything: for short runs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from router.config.varied import varied
from router.lab.emulator.core.timing import CoreConfig, Timing
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.router import TOKEN_BYTES
from router.lab.simulator.scenario import Scenario, equal
from router.lab.simulator.simulation import simulate
from router.lab.simulator.traffic import Arrival

BLOCK = 16
CORE = CoreConfig(
    max_num_seqs=8,
    max_num_batched_tokens=1024,
    num_blocks=256,
    block_size=BLOCK,
    token_events=False,
)
# Timing: prefill 10 ms + 1 ms per token, decode 20 ms per step for any batch.
TIMING = Timing(0.010, 0.001, 0.0, 0.020, 0.0, 0.0)
WORLD = Scenario(
    groups=equal(1, CORE, TIMING),
    config=varied(
        routing={"policy": "round_robin"},
        queue={"enabled": False},
        polling={"interval_s": 0.0},
        prefix={"block_bytes": int(BLOCK * TOKEN_BYTES)},
    ),
    network_s=0.001,
    sample_s=0.0,
)
# Short names of settings: the section and the name in it. "": the whole section.
_SETTINGS = {
    "policy": ("routing", "policy"),
    "hedging": ("hedging", ""),
    "queue": ("queue", ""),
    "classes": ("classes", ""),
    "health": ("health", ""),
    "steps": ("priority", "steps"),
    "attempts": ("retry", "attempts"),
    "retry_body": ("limits", "retry_body"),
    "first_token_s": ("timeouts", "first_token_s"),
    "token_gap_s": ("timeouts", "token_gap_s"),
    "prefix_blocks": ("prefix", "blocks"),
    "interval_s": ("polling", "interval_s"),
    "stale_s": ("polling", "stale_s"),
}
_GROUP = ("replicas", "core", "timing")


def world(**changes: Any) -> Scenario:
    """A scenario with these changed settings: of its only group, its configuration or itself."""
    (group,) = WORLD.groups
    own: dict[str, Any] = {}
    sections: dict[str, Any] = {}
    for name, value in changes.items():
        if name in _GROUP:
            group = replace(group, **{name: value})
        elif name in _SETTINGS:
            section, setting = _SETTINGS[name]
            if setting:
                sections.setdefault(section, {})[setting] = value
            else:
                sections[section] = value
        else:
            own[name] = value
    return replace(WORLD, groups=(group,), config=varied(WORLD.config, **sections), **own)


def blocks(tokens: int, *path: int) -> tuple[int, ...]:
    """Chained hashes of a prompt's full blocks. `path` names the content of each block; the last
    name is repeated to the end of the prompt.
    """
    found = []
    value = 0
    for index in range(tokens // BLOCK):
        name = path[min(index, len(path) - 1)] if path else 0
        value = hash((value, index, name)) & (1 << 64) - 1
        found.append(value)
    return tuple(found)


class Script:
    """Traffic from a list, plus the arrivals that `follow` creates after each answer."""

    name = "script"

    def __init__(
        self,
        arrivals: Iterable[Arrival],
        follow: Callable[[Arrival, float], Sequence[Arrival]] | None = None,
        block_tokens: int = BLOCK,
    ) -> None:
        self.block_tokens = block_tokens
        self._arrivals = list(arrivals)
        self._follow = follow

    def __iter__(self) -> Iterator[Arrival]:
        return iter(self._arrivals)

    def follow(self, ended: Arrival, now: float) -> Sequence[Arrival]:
        return () if self._follow is None else self._follow(ended, now)


class Kept:
    """A recorder that keeps all outcomes in their order."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def ended(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def __getitem__(self, number: int) -> Outcome:
        """The outcome of the request with this number."""
        (found,) = [one for one in self.outcomes if one.arrival.number == number]
        return found

    def lines(self) -> list[str]:
        """Every field of every outcome, with full precision."""
        return [
            " ".join(
                map(
                    str,
                    (
                        one.arrival.number,
                        one.router,
                        one.replica,
                        one.attempts,
                        one.reason.value,
                        one.dispatched.hex(),
                        one.first.hex(),
                        one.ended.hex(),
                        one.cached_tokens,
                        one.expected_tokens,
                    ),
                )
            )
            for one in self.outcomes
        ]


def played(scenario: Scenario, *arrivals: Arrival) -> Kept:
    """The outcomes of these requests and no others."""
    kept = Kept()
    simulate(scenario, Script(arrivals), kept)
    return kept
