"""Ordinary least squares for a few coefficients: a fit for comparison with the learner."""

from __future__ import annotations

from collections.abc import Sequence


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
