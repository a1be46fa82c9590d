"""What was measured beside what was simulated, and by how much that is wrong. Plain values, JSON.

An error is the simulated figure's, as a share of the measured one: +10 % says that the simulation
promises a tenth too much. Shares are compared by their difference, in points: 2 % of hits instead
of 1 % is no error of a hundred percent. Must never: hide a figure that one side lacks.
"""

from __future__ import annotations

import msgspec

from router.replay.truth.errors import error_of, error_text

VERSION = 1  # raised when a field changes its meaning

Range = tuple[float, float]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one workload. None: there is none."""

    workload: str
    name: str
    unit: str  # "%": it is a share, and its error is in points
    measured: float | None
    simulated: float | None
    measured_range: Range | None = None  # over the runs; None: there was one
    simulated_range: Range | None = None  # over the seeds

    @property
    def error(self) -> float | None:
        """In percent, or points of a share; None: one side is missing, or nothing was measured."""
        return error_of(self.measured, self.simulated, self.unit)

    @property
    def error_text(self) -> str:
        return error_text(self.error, self.unit)


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """All that was compared at one time."""

    title: str
    when: str  # the date, as a person writes it
    rows: tuple[Row, ...]
    # What of each TTFT is HTTP's own and in no engine model: of a request on an idle fleet,
    # measured less simulated. None: it was not measured.
    offset_ms: float | None = None
    notes: tuple[str, ...] = ()  # how it was measured, for people
    version: int = VERSION

    def to_json(self) -> bytes:
        """The text of a file; errors stand in it for whoever reads it without us."""
        plain = msgspec.to_builtins(self)
        for row, written in zip(self.rows, plain["rows"], strict=True):
            written["error"] = row.error
        return msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n"

    @classmethod
    def from_json(cls, text: bytes) -> Truth:
        """Raises ValueError for what is no such file, or one of another version."""
        try:
            truth = msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as err:
            raise ValueError(f"not a comparison of measured and simulated: {err}") from None
        if truth.version != VERSION:
            raise ValueError(f"version {truth.version} of the comparison, not {VERSION}")
        return truth
