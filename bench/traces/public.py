"""Reads a trace of Mooncake or Azure as `Traffic`, lazily, once per pass.

A pass yields arrivals in order of time with consecutive numbers, and time 0 is the first one. Each
pass opens the file again and yields exactly the same arrivals.

Mooncake's times are multiples of 3,000 ms, with about ten requests at each time. Without spreading,
each of these slots would begin with a burst that did not happen. The requests of a slot get sorted
uniform random times, as in a Poisson process of which only the number of requests per slot is
known.

`read_mooncake`, `chained`: reads Mooncake's traces: JSON lines with a time in ms, two lengths and
the IDs of the prompt's blocks.

Source: Qin et al., "Mooncake: Trading More Storage for Less Computation", FAST'25, and the format
of its published traces: `timestamp` (ms), `input_length`, `output_length`, `hash_ids` (one per 512
tokens of the prompt; the last one may stand for a partial block, which is never shared).

`matches`, `read_azure`: reads Azure's LLM inference traces of 2023 and 2024. They are CSV files
with an arrival time and two lengths per request, and without information about prefixes.

Source: Patel et al., "Splitwise", ISCA'24 (2023), and Stojkovic et al., "DynamoLLM", HPCA'25
(2024). `TIMESTAMP` has seven fractional digits (2023), or zero to six digits and a UTC offset
(2024). A time without an offset is UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import groupby, islice
from pathlib import PurePath
from random import Random
from typing import Final

import msgspec

from router.core.unreadable import NOT_JSON
from router.lab.simulator.traffic import Arrival, TraceError
from router.lab.traces.hedgerow import ODD
from router.lab.traces.lines import TOKENS_MAX, Lines, bad_json, bad_length, excerpt

COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def matches(line: bytes) -> bool:
    return set(COLUMNS) <= {name.strip() for name in line.decode("utf-8", "replace").split(",")}


def read_azure(lines: Lines) -> Iterator[Arrival]:
    rows = iter(lines)
    names = [name.strip() for name in next(rows).decode().split(",")]
    time, prompt, output = map(names.index, COLUMNS)
    for line in rows:
        cells = line.decode("utf-8", "replace").strip().split(",")
        try:
            when = datetime.fromisoformat(cells[time])
            tokens = int(cells[prompt]), int(cells[output])
        except (ValueError, IndexError):
            raise lines.error(f"not a time and two numbers: {excerpt(line)}") from None
        if tokens[0] < 1 or tokens[1] < 0:
            raise lines.error(f"numbers of tokens out of range: {excerpt(line)}")
        at = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
        yield Arrival(lines.number, at.timestamp(), *tokens)


BLOCK_TOKENS: Final = 512
_64: Final = (1 << 64) - 1


class _Row(msgspec.Struct, gc=False):
    timestamp: float  # arrival in milliseconds
    input_length: int
    output_length: int
    hash_ids: list[int]


def read_mooncake(lines: Lines) -> Iterator[Arrival]:
    decode = msgspec.json.Decoder(_Row).decode
    for line in lines:
        try:
            row = decode(line)
        except NOT_JSON as err:
            raise bad_json(lines, err) from None
        prompt, output = row.input_length, row.output_length
        if not 1 <= prompt <= TOKENS_MAX:
            raise bad_length(lines, "input_length", prompt, 1)
        if not 0 <= output <= TOKENS_MAX:
            raise bad_length(lines, "output_length", output, 0)
        blocks = chained(row.hash_ids[: prompt // BLOCK_TOKENS])
        yield Arrival(lines.number, row.timestamp / 1000.0, prompt, output, blocks)


def chained(ids: Sequence[int]) -> tuple[int, ...]:
    """Return one 64-bit hash per ID. Each hash depends on its own ID and on all IDs before it.

    The prefix index selects a shard by the highest bits, in which the IDs 0, 1, 2, ... do not
    differ. The common prefix of two prompts has as many hashes as IDs. The hashes are the same in
    every process.
    """
    hashes: list[int] = []
    before = 0
    for one in ids:
        mixed = ((before ^ one) + 1) * ODD & _64
        before = mixed ^ mixed >> 32
        hashes.append(before)
    return tuple(hashes)


_SLOT_S: Final = 3.0
# Tolerance in seconds; Mooncake's times differ from the multiples by up to 3 ms.
_NEAR_S: Final = 0.005
_HEAD_ROWS: Final = 1000  # rows that show whether times are rounded


class PublicTrace:
    """The traffic of one file, gzip or plain.

    `limit`: the maximum number of requests; `since_s`: read from this time on, which is then time
    0; `speedup`: arrival times are divided by this. Raises TraceError and OSError.
    """

    block_tokens = BLOCK_TOKENS

    def __init__(
        self,
        path: str,
        *,
        spread_seed: int = 1,
        limit: int | None = None,
        since_s: float = 0.0,
        speedup: float = 1.0,
    ) -> None:
        self.name = PurePath(path).name
        self._path = path
        self._seed = spread_seed
        self._limit = limit
        self._since_s = since_s
        self._speedup = speedup
        with closing(Lines(path)) as lines:
            first = next(iter(lines), b"")
        self._read = read_azure if matches(first) else read_mooncake
        with closing(Lines(path)) as lines:
            times = [arrival.at for arrival in islice(self._read(lines), _HEAD_ROWS)]
        if not times:
            raise TraceError(path, 1, "no requests")
        self.slot_s = _SLOT_S if is_rounded(times) else 0.0

    def __iter__(self) -> Iterator[Arrival]:
        with closing(Lines(self._path)) as lines:
            yield from islice(self._selected(lines), self._limit)

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        """No requests follow an answer, because the times of a trace are fixed."""
        return ()

    def _selected(self, lines: Lines) -> Iterator[Arrival]:
        arrivals = _in_order(lines, self._read(lines))
        if self.slot_s:
            arrivals = spread(arrivals, self.slot_s, self._seed)
        zero: float | None = None
        number = 0
        for arrival in arrivals:
            if zero is None:
                zero = arrival.at + self._since_s
            if arrival.at >= zero:
                arrival.at = (arrival.at - zero) / self._speedup
                arrival.number = number
                number += 1
                yield arrival


def is_rounded(times: Sequence[float]) -> bool:
    """Whether all times after the first arrival are multiples of the slot."""
    return all((at - times[0] + _NEAR_S) % _SLOT_S <= 2.0 * _NEAR_S for at in times)


def spread(arrivals: Iterable[Arrival], slot_s: float, seed: int) -> Iterator[Arrival]:
    """Move each arrival to a random time within its slot. The order of the rows stays the same."""
    rng = Random(seed)
    slots = groupby(arrivals, key=lambda arrival: arrival.at)
    group: list[Arrival] = []
    for at, members in slots:
        if group:
            yield from _spaced(group, min(slot_s, at - group[0].at), rng)
        group = list(members)
    yield from _spaced(group, slot_s, rng)


def _spaced(group: list[Arrival], width_s: float, rng: Random) -> Iterator[Arrival]:
    offsets = sorted([rng.random() for _ in group])
    for arrival, offset in zip(group, offsets, strict=True):
        arrival.at += width_s * offset
        yield arrival


def _in_order(lines: Lines, arrivals: Iterable[Arrival]) -> Iterator[Arrival]:
    last = 0.0
    for arrival in arrivals:
        if not arrival.at >= last:  # also true for NaN
            raise lines.error(f"arrives {last - arrival.at:g} s before the previous row")
        last = arrival.at
        yield arrival
