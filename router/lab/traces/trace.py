"""Reads an access log as `Traffic`, lazily, once per pass.

A pass yields arrivals in order of time with consecutive numbers. Time 0 is the first arrival of the
file. Each pass opens the file again and yields exactly the same arrivals.
Must never: hold more than the current line and the rows that the reader holds for sorting.

`Reuse`, `TraceFacts`: computes statistics of the traffic without a simulation, in one pass and in
bounded memory.

Reuse is the hit rate of an infinite cache that all replicas share. The hash of a block depends on
all blocks before it. So a block was seen before only if its whole prefix was seen before. Therefore
the number of hits is the number of all blocks minus the number of distinct blocks. Up to `EXACT`
distinct blocks are counted exactly. Beyond that they are sampled by hash, and the estimate of their
number has a standard error of about 0.1 % (Wegman's adaptive sampling; Flajolet, "On adaptive
sampling", Computing 43, 1990).

The hit rate refers to ALL blocks of the prompts, including partial blocks: a prompt has ceil(prompt
/ block_tokens) blocks. Only full blocks can be hits. An access log has only the first blocks of a
long prompt; the other blocks of the prompt count as misses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from math import inf
from os import PathLike, fspath, stat
from pathlib import PurePath
from stat import S_ISREG
from typing import Final

from router.lab.simulator.traffic import Arrival, TraceError, Traffic
from router.lab.traces.hedgerow import matches, measured, read
from router.lab.traces.lines import Lines, excerpt, is_event

# A log may begin inside a line: among so many lines a whole line is looked for.
_LOOKED_AT: Final = 8


class Trace:
    """The traffic of one access log, gzip or plain.

    - `block_tokens`: tokens per block of the file; None: measured.
    - `model`: read only the requests of this model.
    - `limit`: the maximum number of requests.
    - `until_s`: read only this part, in seconds after the first request.
    - `speedup`: arrival times are divided by this.

    The first rows of the file are read at once. Raises TraceError, OSError, and ValueError for an
    option that is out of range.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        block_tokens: int | None = None,
        model: str | None = None,
        limit: int | None = None,
        until_s: float | None = None,
        speedup: float = 1.0,
    ) -> None:
        if any(value is not None and value < 1 for value in (block_tokens, limit)):
            raise ValueError("block_tokens and limit must be at least 1")
        if not speedup > 0.0 or (until_s is not None and not until_s > 0.0):
            raise ValueError("speedup and until_s must be above 0")
        self.path = fspath(path)
        self.name = PurePath(self.path).name
        self._limit = limit
        self._speedup = speedup
        self._until_s = inf if until_s is None else until_s
        self._model = model
        self._lines: Lines | None = None  # the lines of the latest pass
        # The time on the file's own clock, in s, that is time 0 of the latest pass.
        self.zero_s = 0.0
        if not S_ISREG(stat(self.path).st_mode):
            problem = "not a regular file; the file must be readable more than once"
            raise TraceError(self.path, 1, problem)
        _check_kind(self.path)
        with closing(Lines(self.path)) as lines:
            measured_tokens, self._usual_output = measured(lines)
        self.block_tokens = block_tokens or measured_tokens

    def __iter__(self) -> Iterator[Arrival]:
        """Read the file once and yield its arrivals. Raises TraceError and OSError."""
        lines = self._lines = Lines(self.path)
        with closing(lines):
            yield from self._selected(lines)

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        """No requests follow an answer, because the times of a trace are fixed."""
        return ()

    def share(self) -> float:
        """The share of the file that the latest pass has read, 0 to 1."""
        if self._lines is None:
            return 0.0
        read_bytes, total = self._lines.position()
        return min(read_bytes / total, 1.0) if total else 1.0

    def notes(self) -> dict[str, int]:
        """Counts of rows that the latest pass skipped or completed by estimates."""
        return {} if self._lines is None else dict(self._lines.notes)

    def _selected(self, lines: Lines) -> Iterator[Arrival]:
        number = 0
        zero: float | None = None
        for arrival in read(lines, self.block_tokens, self._usual_output):
            if zero is None:
                zero = self.zero_s = arrival.at
            after = arrival.at - zero
            if self._model is not None and arrival.model != self._model:
                continue
            if after >= self._until_s:
                break
            arrival.at = after / self._speedup
            arrival.number = number
            number += 1
            yield arrival
            if number == self._limit:
                return
        if not number:
            raise lines.error("no request in the selected time, or none of the selected model")


def _check_kind(path: str) -> None:
    """Raise TraceError for a file that is not an access log."""
    with closing(Lines(path)) as lines:
        first, number, seen = b"", 0, 0
        for line in lines:
            if is_event(line):
                number = number or lines.number
                continue
            if not first:
                first, number = line, lines.number
            if matches(line):
                return
            seen += 1
            if seen == _LOOKED_AT:
                break
        if not first:
            raise lines.error("only events of the router" if number else "empty file")
        problem = (
            "not an access log of Hedgerow, which has JSON lines with ts, id and kind. "
            f"The first line is {excerpt(first[:64])}"
        )
        raise TraceError(path, number, problem)


EXACT: Final = 1 << 20  # the number of distinct blocks that are counted exactly
MODELS_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """Counts of blocks of prompts: the cache hits, and all blocks."""

    hits: int
    asked: int  # all blocks of the prompts, partial ones included

    @property
    def share(self) -> float:
        """The hit rate, 0 to 1."""
        return self.hits / self.asked if self.asked else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFacts:
    """The statistics of the traffic of one source."""

    name: str
    rows: int
    duration_s: float  # seconds from the first arrival to the last
    rate: float  # arrivals per second; 0 if the duration is 0
    prompt_tokens: float  # mean
    output_tokens: float  # mean
    block_tokens: int
    reuse: Reuse | None  # reuse in an infinite shared cache; None: the source has no prefixes
    # Requests by model; after 100 models, further models count under "".
    models: dict[str | None, int]
    # Number of rows that the reader skipped or completed with estimates, by reason.
    notes: dict[str, int]


def describe(traffic: Traffic) -> TraceFacts:
    """Read all requests of a source once. Raises TraceError, and ValueError for no requests."""
    blocks = _Distinct()
    models: dict[str | None, int] = {}
    size = traffic.block_tokens
    rows = prompts = outputs = asked = known = 0
    first = last = 0.0
    for arrival in traffic:
        last = arrival.at
        if not rows:
            first = last
        rows += 1
        prompts += arrival.prompt_tokens
        outputs += arrival.output_tokens
        asked += -(-arrival.prompt_tokens // size)
        if arrival.blocks:
            known += len(arrival.blocks)
            blocks.add(arrival.blocks)
        model = arrival.model
        if model not in models and len(models) >= MODELS_MAX:
            model = ""
        models[model] = models.get(model, 0) + 1
    if not rows:
        raise ValueError(f"{traffic.name}: no requests")
    duration = last - first
    hits = known - min(blocks.count(), known)
    return TraceFacts(
        name=traffic.name,
        rows=rows,
        duration_s=duration,
        rate=rows / duration if duration else 0.0,
        prompt_tokens=prompts / rows,
        output_tokens=outputs / rows,
        block_tokens=size,
        reuse=Reuse(hits=hits, asked=asked) if known else None,
        models=models,
        notes=traffic.notes() if isinstance(traffic, Trace) else {},
    )


class _Distinct:
    """Estimates the number of distinct 64-bit hashes with a sample of at most `most` of them.

    The sample has the hashes whose lowest n bits are 0; n grows when the sample is full. So the
    number of occurrences of a hash does not change whether the hash is in the sample.
    """

    def __init__(self, most: int = EXACT) -> None:
        self._most = most
        self._kept: set[int] = set()
        self._mask = 0

    def add(self, hashes: tuple[int, ...]) -> None:
        if self._mask:
            mask = self._mask
            hashes = tuple([one for one in hashes if not one & mask])
        kept = self._kept
        kept.update(hashes)
        while len(kept) > self._most:
            self._mask = self._mask << 1 | 1
            mask = self._mask
            kept = self._kept = {one for one in kept if not one & mask}

    def count(self) -> int:
        return len(self._kept) * (self._mask + 1)
