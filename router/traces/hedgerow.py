"""Hedgerow's own access log: what came, from what was written at the end of each request.

Fields: `router/observe/log/access_log.py`. Which lines become arrivals:

- Routes that generate (`intake.prompt.GENERATES`); the others load no prefix cache.
- Those that were answered, and those that failed for want of a replica or of patience (5xx, 408,
  429, 499): somebody wanted an answer, and another policy might have given it. Other 4xx are
  refusals that cost no engine anything, whoever is asked. `skip_failed` leaves both out.
- Those whose prompt has a known size: the engine's count, or the router's estimate, or a quarter of
  the body's bytes if it was sent to a replica; a body that was never read has none.

Answers that nobody counted, most of all those of failed requests, are as long as the mean answer at
the head of the log, unless `output_tokens` says how long; one that broke off keeps its count.

Lines are in the order of ends, so they are sorted within a window (see `order`). The last line may
be cut off, because the file is being written; any other that is no JSON is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from math import ceil
from sys import intern
from typing import Final

import msgspec

from router.core.errors import Reason
from router.core.unreadable import NOT_JSON
from router.fleet.prefix.index import TokenRatio
from router.intake.prompt import GENERATES
from router.simulator.logged import Logged
from router.simulator.traffic import Arrival
from router.traces.blocks import SALTED_BYTES, salted
from router.traces.format import (
    HEAD_BYTES,
    HEAD_ROWS,
    TOKENS_MAX,
    Format,
    ReadOptions,
    bad_json,
    bad_length,
    keys_of,
)
from router.traces.lines import Lines
from router.traces.order import by_arrival

WINDOW_S: Final = 900.0  # a request that takes longer is late; long agent answers take minutes
_WANTED: Final = frozenset({408, 429, 499})  # 4xx of requests that were not refused for themselves
_ROWS_MIN: Final = 20  # to measure the size of a block by


class _Row(msgspec.Struct, gc=False, rename={"priority": "class"}):
    ts: float  # seconds since 1970
    kind: str = ""
    model: str | None = None
    stream: bool = False
    status: int = 0
    attempts: list[msgspec.Raw] = []  # none: it was sent nowhere
    duration_ms: float = 0.0
    bytes_in: int = 0
    priority: str = ""
    tenant: str = ""
    session: str = ""
    within: str = ""
    user: str = ""
    known_key: bool = False
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    estimated_tokens: int = 0
    blocks: bytes = b""
    reason: str = ""
    replica: str = ""
    ttft_ms: float | None = None
    queue_ms: float | None = None
    cached_tokens: int | None = None
    slots: int | None = None
    kv_tokens: int | None = None

    @property
    def is_refused(self) -> bool:
        return 400 <= self.status < 500 and self.status not in _WANTED

    @property
    def prompt_size(self) -> int:
        """In tokens; 0: nobody knows."""
        known = self.prompt_tokens or self.estimated_tokens
        if known or not self.attempts:
            return known
        return ceil(self.bytes_in / TokenRatio.DEFAULT)


def fits(line: bytes) -> bool:
    return keys_of(line) >= {"ts", "id", "kind"}


def read(lines: Lines, options: ReadOptions) -> Iterator[Arrival]:
    window_s = WINDOW_S if options.window_s is None else options.window_s
    size = options.block_tokens
    for arrival, packed in by_arrival(lines, _requests(lines, options), options, window_s):
        if packed:
            arrival.blocks = salted(packed[: arrival.prompt_tokens // size * SALTED_BYTES])
        yield arrival


def _requests(
    lines: Lines, options: ReadOptions
) -> Iterator[tuple[float, float, int, tuple[Arrival, bytes]]]:
    """What `by_arrival` takes. Blocks stay packed while they wait."""
    is_empty = True
    for row in _rows(lines):
        is_failed = row.status >= 400
        if row.is_refused or (is_failed and options.skip_failed):
            lines.note("skipped: refused" if row.is_refused else "skipped: failed")
            continue
        prompt = row.prompt_size
        if not prompt:
            lines.note("skipped: prompt of unknown size")
            continue
        if row.prompt_tokens is None:
            lines.note("prompt estimated")
        output = row.output_tokens
        if output is None:
            output = options.output_tokens
            if not output:
                raise lines.error(
                    "no answer's length is known at the head of this log: give output_tokens"
                )
            lines.note("answer taken to be of mean length")
        if not 1 <= prompt <= TOKENS_MAX:
            raise bad_length(lines, "the prompt", prompt, 1)
        if not 0 <= output <= TOKENS_MAX:
            raise bad_length(lines, "output_tokens", output, 0)
        if len(row.blocks) % SALTED_BYTES:
            raise lines.error(f"blocks have {len(row.blocks)} bytes, not six for each")
        arrival = Arrival(
            lines.number,
            row.ts,
            prompt,
            output,
            tenant=intern(row.tenant),
            within=intern(row.within),
            user=number_of(row.user),
            is_known=row.known_key,
            priority=intern(row.priority),
            session=row.session or None,
            model=None if row.model is None else intern(row.model),
            stream=row.stream,
            kind=intern(row.kind),
            logged=_logged(row),
        )
        is_empty = False
        ended = row.ts + row.duration_ms / 1000.0
        yield row.ts, ended, len(row.blocks) // SALTED_BYTES, (arrival, row.blocks)
    if is_empty:
        raise lines.error("no request in it that would generate: nothing to replay")


def _logged(row: _Row) -> Logged:
    """Times of a stream only: other answers show nothing before they are whole."""
    ttft_s = tpot_s = None
    if row.stream and row.ttft_ms is not None:
        ttft_s = row.ttft_ms / 1000.0
        if row.reason == Reason.OK.value and row.output_tokens and row.output_tokens > 1:
            tpot_s = (row.duration_ms - row.ttft_ms) / 1000.0 / (row.output_tokens - 1)
    return Logged(
        intern(row.reason),
        row.duration_ms / 1000.0,
        replica=intern(row.replica),
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        wait_s=(row.queue_ms or 0.0) / 1000.0,
        prompt_tokens=row.prompt_tokens,
        cached_tokens=row.cached_tokens,
        output_tokens=row.output_tokens,
        slots=row.slots,
        kv_tokens=row.kv_tokens,
    )


def number_of(user: str) -> int:
    """The number of a user; what is no hash names none."""
    try:
        return int(user, 16) if user else 0
    except ValueError:
        return 0


def _rows(lines: Lines) -> Iterator[_Row]:
    """Lines of routes that generate."""
    decode = msgspec.json.Decoder(_Row).decode
    for line in lines:
        try:
            row = decode(line)
        except NOT_JSON as err:
            if lines.is_cut and not isinstance(err, msgspec.ValidationError):
                lines.note("skipped: last line, still being written")
                return
            raise bad_json(lines, err) from None
        if row.kind in GENERATES:
            yield row
        else:
            lines.note("skipped: route that generates nothing")


def prepare(lines: Lines, options: ReadOptions) -> ReadOptions:
    """Measure the tokens of a block and of an answer at the head of the log."""
    answers: list[int] = []
    prompts: list[tuple[int, int]] = []
    for row in islice(_rows(lines), HEAD_ROWS):
        if row.output_tokens:
            answers.append(row.output_tokens)
        if row.prompt_tokens and row.blocks:
            prompts.append((row.prompt_tokens, len(row.blocks) // SALTED_BYTES))
        if lines.position()[0] > HEAD_BYTES:
            break
    if not options.output_tokens and answers:
        options = replace(options, output_tokens=round(sum(answers) / len(answers)))
    if not options.block_tokens:
        options = replace(options, block_tokens=_tokens_per_block(prompts))
    return options


def _tokens_per_block(prompts: list[tuple[int, int]]) -> int:
    """What a block of so many bytes is in tokens, by the engines' own counts.

    A prompt of n full blocks ends somewhere within the next one, on average in its middle. Logs cut
    the blocks of long prompts off, so the longest seen say nothing.
    """
    most = max((blocks for _, blocks in prompts), default=0)
    below = [(tokens, blocks) for tokens, blocks in prompts if blocks < most]
    if len(below) < _ROWS_MIN:
        return HEDGEROW.block_tokens
    return max(1, round(sum(t for t, _ in below) / sum(n + 0.5 for _, n in below)))


HEDGEROW: Final = Format(
    name="hedgerow",
    looks="JSON lines with ts, id and kind: Hedgerow's access log",
    fits=fits,
    read=read,
    block_tokens=256,  # two blocks of 512 bytes, by four bytes a token
    prepare=prepare,
    orders=True,
)
