"""Writes metrics in Prometheus' text format, with the order and spelling of the emulated engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from router.lab.emulator.statistics import Histogram


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class Exposition:
    """The text of metric families in the order in which they are added.

    Labels are printed in alphabetical order. `is_rust` selects the style of the Rust exporter: 4
    instead of 4.0, and a blank line between families.
    """

    def __init__(self, prefix: str, labels: Mapping[str, str], is_rust: bool = False) -> None:
        self._prefix = prefix
        self._labels = dict(labels)
        self._is_rust = is_rust
        self._lines: list[str] = []

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def append(self, other: Exposition) -> None:
        """Append the metrics of another exposition, with the labels of that exposition."""
        self._lines += other._lines

    def family(self, name: str, kind: str, text: str = "") -> None:
        if self._is_rust and self._lines:
            self._lines.append("")
        if text:
            self._lines.append(f"# HELP {self._prefix}{name} {text}")
        self._lines.append(f"# TYPE {self._prefix}{name} {kind}")

    def sample(self, name: str, value: float, **labels: str) -> None:
        """Add a sample to the current family. `labels` are added to the common labels, or replace
        those of the same name.
        """
        merged = {**self._labels, **labels}
        inside = ",".join(f'{key}="{_escaped(merged[key])}"' for key in sorted(merged))
        where = f"{{{inside}}}" if inside else ""
        self._lines.append(f"{self._prefix}{name}{where} {self._number(value)}")

    def gauge(self, name: str, value: float, text: str = "") -> None:
        self.family(name, "gauge", text)
        self.sample(name, value)

    def counter(self, name: str, value: float, text: str = "") -> None:
        self.family(name, "counter", text)
        self.sample(name, value)

    def histogram(self, name: str, histogram: Histogram, text: str = "", **labels: str) -> None:
        self.family(name, "histogram", text)
        for bound, count in histogram.cumulative():
            self.sample(name + "_bucket", count, le=bound, **labels)
        if self._is_rust:
            self.sample(name + "_sum", histogram.sum, **labels)
            self.sample(name + "_count", histogram.count, **labels)
        else:
            self.sample(name + "_count", histogram.count, **labels)
            self.sample(name + "_sum", histogram.sum, **labels)

    def _number(self, value: float) -> str:
        if self._is_rust and value == int(value):
            return str(int(value))
        return str(float(value))


def merged(pages: Sequence[str]) -> str:
    """Join the pages of several engines behind one server. Samples with the same labels are added.

    Each family stays in one piece, as the format requires.
    """
    if len(pages) == 1:
        return pages[0]
    families: dict[str, tuple[list[str], dict[str, float]]] = {}
    for page in pages:
        head: list[str] = []
        samples: dict[str, float] = {}
        for line in page.splitlines():
            if line.startswith("# TYPE "):
                samples = families.setdefault(line.split()[2], ([*head, line], {}))[1]
                head = []
            elif line.startswith("#"):
                head = [line]
            else:
                series, _, value = line.rpartition(" ")
                samples[series] = samples.get(series, 0.0) + float(value)
    lines: list[str] = []
    for head, found in families.values():
        lines += head
        lines += [f"{series} {value}" for series, value in found.items()]
    return "\n".join(lines) + "\n"
