"""Reads a few named samples from a page in the Prometheus text format, and skips everything else.

An engine's page is 50 to 100 KB of histograms, read once a second per replica. One compiled search
finds the wanted lines, and only these are parsed. `Reader` takes a page in pieces, so a page of
megabytes never blocks the event loop for longer than one piece.

One invalid sample (NaN, infinite, negative, not a number, unterminated labels, a duplicate series,
a truncated line) invalidates its whole family, because the sum of the rest would be wrong without
looking wrong. Invalid families are named in `Samples.odd`.

Must never: raise, whatever the bytes are; depend on an engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

LINE_BYTES: Final = 64 * 1024  # a longer line is invalid; vLLM's longest are 3 KB
KEPT_BYTES: Final = 256 * 1024  # of wanted lines; 64 data-parallel vLLM engines have 200 KB
_MOST: Final = 2.0**53  # above it a float cannot represent every integer; no count gets there


class Sample(NamedTuple):
    """One series at one moment; None: an invalid value."""

    labels: Mapping[str, str]
    value: float | None


class Wanted:
    """Names of samples to look for (of histograms with their `_sum`, of counters with `_total`)."""

    __slots__ = ("names", "pattern")

    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)
        # Longest first: an alternation takes the first match. The line feed in front is a literal
        # to search for; comments and other names are skipped there.
        ordered = sorted(self.names, key=len, reverse=True)
        alternatives = b"|".join(re.escape(name.encode("ascii")) for name in ordered)
        self.pattern = re.compile(rb"\n(" + alternatives + rb")([{ \t][^\n]*)")


class Samples:
    """The samples found. A missing name gives None."""

    __slots__ = ("_found", "odd")

    def __init__(self) -> None:
        self._found: dict[str, list[Sample]] = {}
        self.odd: set[str] = set()  # names of samples with invalid values

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, name: str, sample: Sample) -> None:
        self._found.setdefault(name, []).append(sample)
        if sample.value is None:
            self.odd.add(name)

    def series(self, *names: str) -> tuple[str, Sequence[Sample]]:
        """The first of these names that is present, and its samples."""
        for name in names:
            found = self._found.get(name)
            if found is not None:
                return name, found
        return names[-1], ()

    def total(
        self, *names: str, where: Callable[[Mapping[str, str]], bool] | None = None
    ) -> int | None:
        """The sum of a family's integers, of the first name that is present."""
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
        """The largest of some values between 0 and 1."""
        largest: float | None = None
        for sample in samples:
            if sample.value is None:
                return None
            if largest is None or sample.value > largest:
                largest = sample.value
        return None if largest is None else self.share(name, largest)

    def share(self, name: str, value: float) -> float | None:
        """A share of a total; engines' own rounding may take it slightly above 1."""
        if value > 1.001:
            self.odd.add(name)
            return None
        return min(value, 1.0)

    def moment(self, name: str) -> float | None:
        """Seconds since the epoch; the earliest if there are several."""
        values = [sample.value for sample in self._found.get(name, ())]
        known = [value for value in values if value]
        return min(known) if known and len(known) == len(values) else None


class Reader:
    """Takes a page in pieces. `feed` returns whether to continue."""

    __slots__ = ("_carry", "_kept", "_samples", "_seen", "_skipping", "_wanted")

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._samples = Samples()
        self._seen: set[bytes] = set()  # series seen, to find duplicates
        self._carry = b"\n"  # the line feed before an incomplete line, and the line
        self._skipping = False  # inside a line that is too long
        self._kept = 0

    def feed(self, piece: bytes) -> bool:
        """Take a further piece of the page; False: it has more wanted lines than any engine's."""
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
        """The page is complete; a last line without a line feed may be truncated."""
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
    """A whole page at once."""
    reader = Reader(wanted)
    reader.feed(page)
    return reader.end()


_LABEL = re.compile(rb'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"([^"\\]*(?:\\.[^"\\]*)*)"[ \t]*')
_CLOSED = re.compile(rb"[ \t]*\}")
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPED = {b"n": b"\n"}


def _labels(text: bytes) -> tuple[dict[str, str] | None, int]:
    """The labels from the brace on and the index after them; None: unterminated.

    Values contain commas, braces and escaped quotes. They are parsed one by one, because a search
    for a closing brace could find one inside a value.
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
    """The first word as a valid number; a timestamp or an exemplar may follow."""
    words = text.split(None, 1)
    if not words or b"_" in words[0]:  # Python would read 1_000
        return None
    try:
        value = float(words[0])
    except ValueError:
        return None
    # Comparisons with NaN are false.
    return value + 0.0 if 0.0 <= value < float("inf") else None
