"""Measured figures beside simulated figures, with the simulation's error. Plain values, JSON.

The error of a simulated figure is a share of the measured figure: +10 % means that the simulated
figure is a tenth too high. Two shares are compared by their difference in percentage points: 2 % of
hits instead of 1 % is an error of one point. Must never hide a figure that one side lacks.
"""

from __future__ import annotations

import msgspec

from router.replay.truth.errors import error_of, error_text

VERSION = 1  # raised when a field changes its meaning

Range = tuple[float, float]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one workload. `None`: that side has no such figure."""

    workload: str
    name: str
    unit: str  # "%": the figure is a share, and its error is in percentage points
    measured: float | None
    simulated: float | None
    measured_range: Range | None = None  # over the runs; None: there was one run
    simulated_range: Range | None = None  # over the seeds; None: there was one seed

    @property
    def error(self) -> float | None:
        """In percent, or in points of a share; None: a side is missing, or measured 0."""
        return error_of(self.measured, self.simulated, self.unit)

    @property
    def error_text(self) -> str:
        return error_text(self.error, self.unit)


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """All figures that were compared at one time."""

    title: str
    when: str  # the date, as a person writes it
    rows: tuple[Row, ...]
    # The part of each TTFT that HTTP adds and no engine model contains: on an idle fleet, the
    # measured minus the simulated time. None: it was not measured.
    offset_ms: float | None = None
    notes: tuple[str, ...] = ()  # how it was measured, for people
    version: int = VERSION

    def to_json(self) -> bytes:
        """The text of a JSON file. The errors are included, so that no reader must compute them."""
        plain = msgspec.to_builtins(self)
        for row, written in zip(self.rows, plain["rows"], strict=True):
            written["error"] = row.error
        return msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n"

    @classmethod
    def from_json(cls, text: bytes) -> Truth:
        """Raises ValueError if the text is not such a file, or is one of another version."""
        try:
            truth = msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as err:
            raise ValueError(f"not a comparison of measured and simulated: {err}") from None
        if truth.version != VERSION:
            raise ValueError(f"version {truth.version} of the comparison, not {VERSION}")
        return truth
