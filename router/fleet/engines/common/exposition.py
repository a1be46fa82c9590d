"""Reads a few named samples from a page in the Prometheus text format, and skips everything else.

An engine's page has 50 to 100 KB, mostly histograms, and is read once a second per replica. One
regular expression finds the wanted lines, and only these are parsed. `Reader` takes a page in
pieces, so a page of megabytes never blocks the event loop for longer than one piece takes.

One invalid sample (NaN, infinite, negative, not a number, unterminated labels, a duplicate series,
a truncated line) invalidates all samples of its metric, because the sum of the others would be a
wrong but plausible number. `Samples.odd` has the names of invalid metrics.

Must never: raise, whatever the bytes are; depend on an engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from router.core.numbers import decimal_number

LINE_BYTES: Final = 64 * 1024  # A line with more bytes is invalid; vLLM's longest lines have 3 KB.
# Maximum bytes of wanted lines of one page; 64 data-parallel engines have 200 KB.
KEPT_BYTES: Final = 256 * 1024
_MOST: Final = 2.0**53  # Above this number, a float cannot represent every integer.


class Sample(NamedTuple):
    """One series of a metric: its labels and its value. An invalid sample has the value None."""

    labels: Mapping[str, str]
    value: float | None


class Wanted:
    """The names of samples to search, including the suffixes `_sum` (histograms) and `_total`
    (counters)."""

    __slots__ = ("names", "pattern")

    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)
        # The longest names are first, because an alternation takes the first match. The pattern
        # begins with a line feed, because the search for a line feed is fast.
        ordered = sorted(self.names, key=len, reverse=True)
        alternatives = b"|".join(re.escape(name.encode("ascii")) for name in ordered)
        self.pattern = re.compile(rb"\n(" + alternatives + rb")([{ \t][^\n]*)")


class Samples:
    """The samples that were found. A lookup of a missing name returns None."""

    __slots__ = ("_found", "odd", "page_ranks")

    def __init__(self) -> None:
        self._found: dict[str, list[Sample]] = {}
        self.odd: set[str] = set()  # Names of the metrics that have invalid values.
        # The number of ranks on the page, if these samples are those of one rank; else `None`.
        self.page_ranks: int | None = None

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, name: str, sample: Sample) -> None:
        self._found.setdefault(name, []).append(sample)
        if sample.value is None:
            self.odd.add(name)

    def series(self, *names: str) -> tuple[str, Sequence[Sample]]:
        """Return the first of these names that is on the page, and its samples."""
        for name in names:
            found = self._found.get(name)
            if found is not None:
                return name, found
        return names[-1], ()

    def by_rank(self, label: str, numbers: range, shared: frozenset[str]) -> dict[int, Samples]:
        """Return the samples of each of these ranks, and with each all samples of the metrics
        `shared`. `label`: the label with the rank's number.

        If no sample of a metric has the label, the metric is left out.
        """
        ranks = {str(rank): Samples() for rank in numbers}
        for own in ranks.values():
            own.page_ranks = len(numbers)
        for name, samples in self._found.items():
            for sample in samples:
                if name in shared:
                    for own in ranks.values():
                        own.add(name, sample)
                elif (found := ranks.get(sample.labels.get(label, ""))) is not None:
                    found.add(name, sample)
        return {int(rank): own for rank, own in ranks.items()}

    def numbers(self, label: str, *names: str) -> range:
        """Return the values of a label in the samples of a metric, if these values are consecutive
        numbers; else an empty range. The metric is the first of `names` that is on the page."""
        values = {sample.labels.get(label, "") for sample in self.series(*names)[1]}
        first = min([int(v) for v in values if len(v) < 6 and v.isdecimal()], default=0)
        found = range(first, first + len(values))
        return found if values == {str(number) for number in found} else range(0)

    def total(
        self, *names: str, where: Callable[[Mapping[str, str]], bool] | None = None
    ) -> int | None:
        """Return the sum of the samples of one metric, as an integer.

        The metric is the first of `names` that is on the page. `where`: selects samples by their
        labels.
        """
        name, found = self.series(*names)
        if where is not None:
            found = [sample for sample in found if where(sample.labels)]
        return self.sum_of(name, found)

    def sum_of(self, name: str, samples: Sequence[Sample]) -> int | None:
        if not samples:
            return None
        total = 0.0
        for sample in samples:
            if sample.value is None:
                return None
            total += sample.value
        if not total.is_integer() or total > _MOST:
            self.odd.add(name)
            return None
        return int(total)

    def largest_share(self, name: str, samples: Sequence[Sample]) -> float | None:
        """Return the largest value of a metric whose values are between 0 and 1."""
        largest: float | None = None
        for sample in samples:
            if sample.value is None:
                return None
            if largest is None or sample.value > largest:
                largest = sample.value
        return None if largest is None else self.share(name, largest)

    def share(self, name: str, value: float) -> float | None:
        """Return a share of a total, 0 to 1; a value slightly above 1 is a rounding error."""
        if value > 1.001:
            self.odd.add(name)
            return None
        return min(value, 1.0)

    def moment(self, name: str) -> float | None:
        """Return a metric whose value is a time, in seconds since the epoch.

        If the metric has several samples, the result is the earliest time.
        """
        values = [sample.value for sample in self._found.get(name, ())]
        known = [value for value in values if value]
        return min(known) if known and len(known) == len(values) else None


class Reader:
    """Reads a page that is passed in pieces. `feed` returns whether to continue."""

    __slots__ = ("_carry", "_kept", "_samples", "_seen", "_skipping", "_wanted")

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._samples = Samples()
        self._seen: set[bytes] = set()  # The series that were read, to find duplicates.
        # A line feed and the incomplete last line of the pieces so far.
        self._carry = b"\n"
        self._skipping = False  # True: the present position is inside a line that is too long.
        self._kept = 0

    def feed(self, piece: bytes) -> bool:
        """Read the next piece of the page. Returns False if there are too many wanted lines."""
        if self._skipping:
            end = piece.find(b"\n")
            if end < 0:
                return True
            self._skipping = False
            piece = piece[end:]
        data = self._carry + piece
        end = data.rfind(b"\n")
        self._carry = data[end:]
        if len(self._carry) > LINE_BYTES:
            self._cut_off()
            self._skipping = True
        if end > 0:
            for name, rest in self._wanted.pattern.findall(data[:end]):
                self._kept += len(name) + len(rest) + 1
                if self._kept > KEPT_BYTES:
                    return False
                self._take(name, rest)
        return True

    def end(self) -> Samples:
        """Return the samples of the complete page. A last line without a line feed is invalid,
        because it may be truncated."""
        self._cut_off()
        return self._samples

    def _cut_off(self) -> None:
        found = self._wanted.pattern.match(self._carry)
        if found is not None:
            self._samples.add(found[1].decode("ascii"), Sample({}, None))
        self._carry = b""

    def _take(self, name: bytes, rest: bytes) -> None:
        key = name.decode("ascii")
        if rest.startswith(b"{"):
            labels, end = _labels(rest)
        else:
            labels, end = {}, 0
        if labels is None:
            self._samples.add(key, Sample({}, None))
            return
        series = name + rest[:end]
        value = None if series in self._seen else _value(rest[end:])
        self._seen.add(series)
        self._samples.add(key, Sample(labels, value))


def read(page: bytes, wanted: Wanted) -> Samples:
    """Return the samples of a whole page."""
    reader = Reader(wanted)
    reader.feed(page)
    return reader.end()


_LABEL = re.compile(rb'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"([^"\\]*(?:\\.[^"\\]*)*)"[ \t]*')
_CLOSED = re.compile(rb"[ \t]*\}")
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPED = {b"n": b"\n"}


def _labels(text: bytes) -> tuple[dict[str, str] | None, int]:
    """Return the labels that begin with the brace, and the index after them; None: the labels are
    unterminated.

    Values may contain commas, braces and escaped quotes. They are parsed one by one, because a
    search for the closing brace could find a brace inside a value.
    """
    labels: dict[str, str] = {}
    at = 1
    while True:
        closed = _CLOSED.match(text, at)
        if closed is not None:
            return labels, closed.end()
        found = _LABEL.match(text, at)
        if found is None:
            return None, 0
        value = found[2]
        if b"\\" in value:
            value = _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), value)
        labels[found[1].decode("ascii")] = value.decode("utf-8", "replace")
        at = found.end()
        if text[at : at + 1] == b",":
            at += 1
        elif text[at : at + 1] != b"}":
            return None, 0


def _value(text: bytes) -> float | None:
    """Return the first word after the labels as a number; `None`: invalid.

    A timestamp or an exemplar may follow it.
    """
    words = text.split(None, 1)
    if not words:
        return None
    # The format allows a plus sign.
    value = decimal_number(words[0].removeprefix(b"+"))
    return None if value is None or value < 0.0 else value + 0.0
