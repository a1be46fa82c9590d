"""Access logs of emulated fleets whose engines are known, made on the virtual clock."""

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from router.core.errors import Reason
from router.lab.emulator.core.timing import PROFILES, CoreConfig, Timing
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import Group, Scenario
from router.lab.simulator.simulation import simulate
from router.lab.simulator.traffic import Traffic
from router.lab.simulator.workloads import Lengths, Mix, Shared, Unique

EPOCH = 1_700_000_000.0
BLOCK = 256  # tokens of a block in the log
TIMING = PROFILES["realistic"].scaled(0.5)
CORE = CoreConfig(max_num_seqs=32, num_blocks=800, block_size=BLOCK)


class Logger:
    """A recorder that writes outcomes as access log lines, in the order of the requests' ends."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self.lines: list[dict[str, Any]] = []
        self._groups = [group for group in groups for _ in range(group.replicas)]

    def ended(self, outcome: Outcome) -> None:
        arrival = outcome.arrival
        core = self._groups[int(outcome.replica[1:])].core
        shown = outcome.ttft_s
        self.lines.append(
            {
                "ts": EPOCH + arrival.at,
                "id": str(arrival.number),
                "kind": arrival.kind,
                "model": arrival.model,
                "class": arrival.priority,
                "stream": True,
                "exact": True,
                "status": 200 if outcome.reason is Reason.OK else 503,
                "reason": outcome.reason.value,
                "replica": outcome.replica,
                "attempts": [
                    [
                        outcome.replica,
                        "primary",
                        outcome.reason.value,
                        1e3 * (outcome.ended - outcome.dispatched),
                    ]
                ],
                "ttft_ms": None if shown is None else 1e3 * shown,
                "duration_ms": 1e3 * (outcome.ended - arrival.at),
                "queue_ms": 1e3 * outcome.queued_s if outcome.queued_s > 0.0 else None,
                "prompt_tokens": arrival.prompt_tokens,
                "output_tokens": arrival.output_tokens,
                "cached_tokens": outcome.cached_tokens,
                "blocks": b64encode(
                    b"".join(block.to_bytes(8, "big")[2:] for block in arrival.blocks)
                ).decode(),
                "slots": core.max_num_seqs,
                "kv_tokens": core.num_blocks * core.block_size,
            }
        )


def traffic(rate: float = 4.0, duration_s: float = 200.0, seed: int = 1) -> Traffic:
    """Half of the requests are urgent and share no prefix; the other half share prefixes."""
    return Mix(
        Unique(
            rate=rate / 2,
            duration_s=duration_s,
            prompt=Lengths(1500.0, 0.6, 8000),
            output=Lengths(40.0, 0.4, 120),
            priority="high",
            block_tokens=BLOCK,
            seed=seed,
        ),
        Shared(
            rate=rate / 2,
            duration_s=duration_s,
            groups=12,
            prefix_tokens=8 * BLOCK,
            question_tokens=500,
            output_tokens=60,
            block_tokens=BLOCK,
            seed=seed,
        ),
    )


def logged(scenario: Scenario, of: Traffic | None = None) -> list[dict[str, Any]]:
    """The lines of a simulated router's log."""
    logger = Logger(scenario.groups)
    simulate(scenario, traffic() if of is None else of, logger)
    return logger.lines


def write(path: Path, lines: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def coefficients(timing: Timing) -> str:
    """The coefficients in the format of the option `--timing`."""
    return ",".join(
        repr(1e3 * value)
        for value in (
            timing.prefill_s,
            timing.prefill_token_s,
            timing.prefill_square_s,
            timing.decode_s,
            timing.decode_sequence_s,
            timing.decode_context_s,
        )
    )
