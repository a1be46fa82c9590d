"""Compares predictions of the online learner and of least squares for measured timings of engines.

The file is that of Splitwise's performance model (ISCA 2024). It has one row per measurement of a
batch of equal prompts: model, hardware, tensor parallelism, tokens of each prompt, prompts in the
batch, output tokens, and milliseconds of the prefill and of a token. For each model and machine,
the learner gets half of the rows in random order, one second apart. The predictions for the other
half are judged.

Least squares is the usual offline fit, without weights. The prefill of one prompt of L tokens takes
a + b L + c L^2. For a batch, the terms of its prompts are added. A decode step of B sequences takes
d0 + d1 B + d2 * context.

`least_squares`: ordinary least squares for a few coefficients: a fit for comparison with the
learner.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench.findings.found import Found
from bench.predictors.errors import Errors
from policies.engine_speed import EngineSpeed
from router.core.prediction_error import PredictionError
from router.core.speed_learner import SpeedLearner, SpeedSample
from router.core.text.table import Column, build


def least_squares(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Return the coefficients for which `rows` times the coefficients fits `values` best.

    Each column is scaled so that its largest value is 1, which reduces rounding errors. Raises
    ValueError if the rows do not determine the coefficients.
    """
    if not rows:
        raise ValueError("no rows to fit")
    size = len(rows[0])
    scales = [max(abs(row[n]) for row in rows) or 1.0 for n in range(size)]
    scaled = [[row[n] / scales[n] for n in range(size)] for row in rows]
    # The normal equations; the last column is the right-hand side.
    system = [
        [
            *(sum(row[i] * row[j] for row in scaled) for j in range(size)),
            sum(row[i] * value for row, value in zip(scaled, values, strict=True)),
        ]
        for i in range(size)
    ]
    for column in range(size):
        pivot = max(range(column, size), key=lambda i: abs(system[i][column]))
        if abs(system[pivot][column]) < 1e-12 * len(rows):
            raise ValueError("the rows do not determine the coefficients")
        system[column], system[pivot] = system[pivot], system[column]
        for i in range(size):
            if i != column:
                factor = system[i][column] / system[column][column]
                system[i] = [a - factor * b for a, b in zip(system[i], system[column], strict=True)]
    return [system[n][size] / system[n][n] / scales[n] for n in range(size)]


@dataclass(frozen=True, slots=True)
class Timed:
    """One measurement of a batch of equal prompts."""

    prompt: int  # tokens of each prompt
    batch: int
    output: int  # output tokens of each prompt
    prefill_s: float
    token_s: float

    @property
    def context(self) -> float:
        """The mean number of context tokens in the batch during decoding."""
        return self.batch * (self.prompt + 0.5 * self.output)

    def sample(self) -> SpeedSample:
        """The learner's sample: the last prompt of the batch, which waits for the others."""
        ahead = float((self.batch - 1) * self.prompt)
        return SpeedSample(ahead, self.prompt, 0, 0, True)

    def decode(self) -> list[float]:
        return [1.0, float(self.batch), self.context, 0.0]


@dataclass(frozen=True, slots=True)
class Machine:
    """The prediction errors for one model on one machine."""

    name: str
    rows: int
    prefill: Errors
    prefill_offline: Errors
    decode: Errors
    decode_offline: Errors


def read(path: str) -> dict[str, list[Timed]]:
    """Read the measurements of each machine. Raises OSError and ValueError."""
    machines: dict[str, list[Timed]] = {}
    with Path(path).open(newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.DictReader(file), 2):
            try:
                name = f"{row['model']} {row['hardware']} x{row['tensor_parallel']}"
                timed = Timed(
                    int(row["prompt_size"]),
                    int(row["batch_size"]),
                    int(row["token_size"]),
                    1e-3 * float(row["prompt_time"]),
                    1e-3 * float(row["token_time"]),
                )
            except (KeyError, ValueError, TypeError) as err:
                raise ValueError(f"{path}, line {number}: not a row of timings ({err!r})") from None
            machines.setdefault(name, []).append(timed)
    if not machines:
        raise ValueError(f"{path}: no timings")
    return machines


def judge(name: str, rows: Sequence[Timed], seed: int) -> Machine:
    """Learn from half of a machine's rows, and judge the predictions for the other half."""
    rows = list(rows)
    Random(f"{name} {seed}").shuffle(rows)
    half = len(rows) // 2
    learned, judged = rows[:half], rows[half:]
    learner = SpeedLearner(EngineSpeed())
    for number, row in enumerate(learned):
        learner.prefill.learn(row.sample().features(), row.prefill_s, float(number))
        learner.decode.learn(row.decode(), row.token_s, float(number))
    alone = [row for row in learned if row.batch == 1]
    a, b, c = least_squares(
        [[1.0, float(row.prompt), float(row.prompt) ** 2] for row in alone],
        [row.prefill_s for row in alone],
    )
    d = least_squares(
        [[1.0, float(row.batch), row.context] for row in learned],
        [row.token_s for row in learned],
    )
    return Machine(
        name,
        len(judged),
        _errors(
            judged,
            lambda row: learner.prefill.predict(row.sample().features()),
            lambda row: row.prefill_s,
        ),
        _errors(
            judged,
            lambda row: a + row.batch * (b * row.prompt + c * row.prompt**2),
            lambda row: row.prefill_s,
        ),
        _errors(judged, lambda row: learner.decode.predict(row.decode()), lambda row: row.token_s),
        _errors(
            judged,
            lambda row: d[0] + d[1] * row.batch + d[2] * row.context,
            lambda row: row.token_s,
        ),
    )


def _errors(
    rows: Sequence[Timed], predict: Callable[[Timed], float], actual: Callable[[Timed], float]
) -> Errors:
    error = PredictionError()
    for row in rows:
        error.add(predict(row), actual(row))
    return Errors.of([error])


def run(path: str, seed: int) -> Found:
    """Judge every machine of the file. Raises OSError and ValueError."""
    machines = [judge(name, rows, seed) for name, rows in sorted(read(path).items())]
    return Found(
        "Measured timings of engines",
        "Mean absolute percentage errors. For each machine, half of the rows were learned and the "
        "other half was judged. Offline: least squares over the same rows, without weights.",
        build(machines, _columns()),
    )


def _columns() -> list[Column[Machine]]:
    return [
        Column("name", "machine", text=lambda machine: machine.name),
        Column("rows", "rows", value=lambda machine: machine.rows),
        Column("p", "prefill", "%", lambda machine: machine.prefill.mape),
        Column("po", "prefill offline", "%", lambda machine: machine.prefill_offline.mape),
        Column("d", "decode", "%", lambda machine: machine.decode.mape),
        Column("do", "decode offline", "%", lambda machine: machine.decode_offline.mape),
    ]
