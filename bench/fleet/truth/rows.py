"""The result of a comparison: measured and simulated figures with the errors, stored as JSON.

The error of a simulated figure is relative to the measured figure: +10 % means that the simulated
figure is a tenth too high. Shares are compared by their difference in percentage points: a hit rate
of 2 % instead of 1 % is an error of one point. Must never leave out a figure because only one side
has it.
"""

from __future__ import annotations

import msgspec

from router.lab.replay.truth.judged import error_of, error_text

VERSION = 1  # version of the file format; increased when a field changes its meaning

Range = tuple[float, float]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one workload. `measured` or `simulated` is None if that side has no such
    figure.
    """

    workload: str
    name: str
    unit: str  # if the unit is "%", the error is in percentage points
    measured: float | None
    simulated: float | None
    # Minimum and maximum over the runs; None after a single run.
    measured_range: Range | None = None
    # Minimum and maximum over the seeds; None with a single seed.
    simulated_range: Range | None = None

    @property
    def error(self) -> float | None:
        """The error in percent, or in percentage points of a share.

        It is None if a side has no such figure, or if the measured figure is 0.
        """
        return error_of(self.measured, self.simulated, self.unit)

    @property
    def error_text(self) -> str:
        return error_text(self.error, self.unit)


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of one comparison."""

    title: str
    when: str  # date and time of the comparison, as text
    rows: tuple[Row, ...]
    # Milliseconds that HTTP adds to each TTFT, which no engine model contains: the measured minus
    # the simulated TTFT on an idle fleet. None if not measured.
    offset_ms: float | None = None
    notes: tuple[str, ...] = ()  # sentences about the method
    version: int = VERSION

    def to_json(self) -> bytes:
        """Return the text of a JSON file. It includes the errors, which could also be computed."""
        plain = msgspec.to_builtins(self)
        for row, written in zip(self.rows, plain["rows"], strict=True):
            written["error"] = row.error
        return msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n"

    @classmethod
    def from_json(cls, text: bytes) -> Truth:
        """Read the text of such a file. Raises ValueError for other content or another version."""
        try:
            truth = msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as err:
            raise ValueError(f"not a comparison of measured and simulated: {err}") from None
        if truth.version != VERSION:
            raise ValueError(f"version {truth.version} of the comparison, not {VERSION}")
        return truth
