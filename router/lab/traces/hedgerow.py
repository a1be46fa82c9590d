"""Reads Hedgerow's own access log, which has one line per request, written when the request ends.

Fields: `router/observe/log/record.py`. A line becomes an arrival if all of these conditions hold:

- The route of the request generates tokens (`intake.prompt.GENERATES`).
- The request was answered, or it failed because no replica answered in time (5xx, 408, 499, 429 of
  a full queue). With another policy a replica might have answered it.
- No limit of a key refused the request. The client retries such a request, and the retry has its
  own line.
- The request did not fail with another 4xx, because such a request causes no work at an engine.
- The prompt size is known: the engine's count, else the router's estimate, else a quarter of the
  body's bytes if the body was sent to a replica.

The length of an answer is the engine's count of output tokens. In two cases the length is unknown:

- There is no count, for example because the request failed. The length is the mean length in the
  first rows of the log.
- The client disconnected before the end. The length is the same mean, but at least one token more
  than the count. In the replay the client disconnects after the same time, unless the answer has
  ended by then.

The client's own limit of output tokens bounds the length in both cases.

Lines are in order of the requests' ends, so they are sorted by arrival within a time window (see
`order`). Incomplete lines are skipped and counted. A line with an invalid value is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import ceil, inf, nan
from struct import Struct
from sys import intern
from typing import Annotated, Final, Literal

import msgspec

from router.core.errors import DISCONNECTED, KEY_LIMITS, Reason
from router.core.unreadable import NOT_JSON
from router.fleet.prefix.token_ratio import TokenRatio
from router.intake.prompt import GENERATES
from router.lab.simulator.arrival import Logged
from router.lab.simulator.traffic import Arrival
from router.lab.traces.lines import (
    HEAD_BYTES,
    HEAD_ROWS,
    TOKENS_MAX,
    Lines,
    Milliseconds,
    Tokens,
    bad_length,
    by_arrival,
    check_incomplete,
    is_event,
    keys_of,
)

# 4xx statuses that depend on the load, not on the request itself.
_LOAD: Final = frozenset({408, 429, 499})
_GONE: Final = 499  # the status of a request whose client disconnected
_OK: Final = Reason.OK.value
_KEY_LIMITS: Final = frozenset(reason.value for reason in KEY_LIMITS)
_DISCONNECTED: Final = frozenset(reason.value for reason in DISCONNECTED)
_EVENT: Final = "skipped: event of the router"
_ROWS_MIN: Final = 20  # minimum number of rows for measuring the block size
# One hash of the log is for two blocks of 512 bytes, at four bytes per token.
_BLOCK_TOKENS: Final = 256
_PACKED: Final = Struct(">HI")  # the hash of one block: six bytes
BLOCK_BYTES: Final = _PACKED.size
_64: Final = (1 << 64) - 1
# 2^64 / golden ratio, odd. Multiplication by an odd number is a bijection modulo 2^64, and the
# highest bits of the product depend on all lower bits (Knuth, TAOCP 3, 6.4). The prefix index
# selects a shard by the highest six bits.
ODD: Final = 0x9E3779B97F4A7C15


_SloMs = Annotated[float, msgspec.Meta(gt=0.0, le=1e9)]


class _Row(msgspec.Struct, gc=False, rename={"priority": "class"}):
    ts: float  # arrival, in seconds since 1970
    kind: str = ""
    model: str | None = None
    stream: bool = False
    status: int = 0
    reason: str = ""
    replica: str = ""
    # One entry per attempt; empty: the request was never sent to a replica.
    attempts: list[msgspec.Raw] = []
    ttft_ms: Milliseconds | None = None
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
    cached_tokens: Tokens | None = None
    exact: bool = False
    estimated_tokens: int = 0
    blocks: bytes = b""
    queue_ms: Milliseconds | None = None
    number: Annotated[float, msgspec.Meta(ge=0.0, le=4.0)] | None = None
    deadline_ms: Annotated[float, msgspec.Meta(ge=0.0)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    hedge: Literal["", "on", "off"] = ""
    slots: Annotated[int, msgspec.Meta(ge=0)] | None = None
    kv_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    ttft_slo_ms: _SloMs | None = None
    tpot_slo_ms: _SloMs | None = None
    region: str = ""
    client_region: str = ""
    replica_type: str = ""
    served_model: str = ""

    @property
    def is_refused(self) -> bool:
        return 400 <= self.status < 500 and self.status not in _LOAD

    @property
    def prompt_size(self) -> int:
        """The size of the prompt in tokens; 0: unknown."""
        known = self.prompt_tokens or self.estimated_tokens
        if known or not self.attempts:
            return known
        return ceil(self.bytes_in / TokenRatio.DEFAULT)

    @property
    def has_left(self) -> bool:
        """Whether the client disconnected before the answer was complete."""
        return self.status == _GONE or self.reason in _DISCONNECTED

    def output_size(self, usual: int) -> int:
        """The size of the answer in tokens, counted or estimated; 0: unknown.

        `usual`: the mean size, for estimates.
        """
        counted = self.output_tokens
        if counted is not None and not self.has_left:
            return counted
        size = usual if counted is None else max(counted + 1, usual)
        return size if self.max_tokens is None else min(size, self.max_tokens)

    def logged(self) -> Logged:
        """The logged result of the request."""
        has_content = self.ttft_ms is not None and (self.status < 400 or self.status == _GONE)
        ttft_ms = self.ttft_ms if has_content else None
        tpot_s: float | None = None
        more = (self.output_tokens or 0) - 1
        is_whole = self.reason == _OK and self.exact
        if ttft_ms is not None and is_whole and self.stream and more >= 1:
            tpot_s = (self.duration_ms - ttft_ms) / 1000.0 / more
        return Logged(
            intern(self.reason),
            self.duration_ms / 1000.0,
            ttft_s=None if ttft_ms is None else ttft_ms / 1000.0,
            tpot_s=tpot_s,
            wait_s=(self.queue_ms or 0.0) / 1000.0,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=self.output_tokens,
            replica=intern(self.replica),
            slots=self.slots,
            kv_tokens=self.kv_tokens,
            region=intern(self.region),
            client_region=intern(self.client_region or self.region),
            replica_type=intern(self.replica_type),
            model=intern(self.served_model),
        )


def matches(line: bytes) -> bool:
    return keys_of(line) >= {"ts", "id", "kind"}


def read(lines: Lines, block_tokens: int, usual_output: int) -> Iterator[Arrival]:
    """Yield the requests of a log in the order of their arrivals, `at` in seconds since 1970.

    `usual_output`: the length of answers without a token count; 0: such a row is an error.
    """
    for arrival, packed in by_arrival(lines, _requests(lines, usual_output)):
        if packed:
            full = arrival.prompt_tokens // block_tokens
            arrival.blocks = hashes_of(packed[: full * BLOCK_BYTES])
        yield arrival


def hashes_of(packed: bytes) -> tuple[int, ...]:
    """Convert the block hashes of a log, six bytes each, to the 64-bit hashes of the prefix index.

    Each hash of the log already depends on the blocks before it.
    """
    return tuple([(high << 32 | low) * ODD & _64 for high, low in _PACKED.iter_unpack(packed)])


def _requests(
    lines: Lines, usual_output: int
) -> Iterator[tuple[float, float, int, tuple[Arrival, bytes]]]:
    """Yield the rows in the form that `by_arrival` needs.

    The hashes of blocks stay packed bytes until the rows are sorted, to save memory.
    """
    is_empty = True
    for row in _rows(lines):
        if row.reason in _KEY_LIMITS:
            lines.note("skipped: refused by a key's limit")
            continue
        if row.is_refused:
            lines.note("skipped: refused")
            continue
        prompt = row.prompt_size
        if not prompt:
            lines.note("skipped: unknown prompt size")
            continue
        if row.prompt_tokens is None:
            lines.note("prompt estimated")
        output = row.output_size(usual_output)
        if row.output_tokens is None:
            if not output:
                raise lines.error("the first rows of this log have no answer of known length")
            lines.note("answer length unknown: the mean is used")
        elif row.has_left:
            lines.note("client disconnected: the answer length is estimated")
        if not 1 <= prompt <= TOKENS_MAX:
            raise bad_length(lines, "the prompt", prompt, 1)
        if not 0 <= output <= TOKENS_MAX:
            raise bad_length(lines, "output_tokens", output, 0)
        if len(row.blocks) % BLOCK_BYTES:
            raise lines.error(
                f"blocks have {len(row.blocks)} bytes, which is not a multiple of {BLOCK_BYTES}"
            )
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
            priority_number=nan if row.number is None else row.number,
            deadline_s=inf if row.deadline_ms is None else row.deadline_ms / 1000.0,
            leaves_s=row.duration_ms / 1000.0 if row.has_left else inf,
            max_tokens=-1 if row.max_tokens is None else row.max_tokens,
            hedging=row.hedge,
            ttft_slo_s=(row.ttft_slo_ms or 0.0) / 1000.0,
            tpot_slo_s=(row.tpot_slo_ms or 0.0) / 1000.0,
            logged=row.logged(),
        )
        is_empty = False
        ended = row.ts + row.duration_ms / 1000.0
        yield row.ts, ended, len(row.blocks) // BLOCK_BYTES, (arrival, row.blocks)
    if is_empty:
        raise lines.error("the log has no requests that generate tokens: nothing to replay")


def number_of(user: str) -> int:
    """A user's hash as a number; 0 if the text is not a hash."""
    try:
        return int(user, 16) if user else 0
    except ValueError:
        return 0


def _rows(lines: Lines) -> Iterator[_Row]:
    """Yield the rows of requests to routes that generate tokens."""
    decode = msgspec.json.Decoder(_Row).decode
    for line in lines:
        try:
            row = decode(line)
        except NOT_JSON as err:
            if is_event(line):
                lines.note(_EVENT)
            else:
                check_incomplete(lines, line, err)
            continue
        if row.kind in GENERATES:
            yield row
        elif not row.kind and is_event(line):
            lines.note(_EVENT)
        else:
            lines.note("skipped: route that generates no tokens")


def measured(lines: Lines) -> tuple[int, int]:
    """Return the tokens per block and the mean answer length (0: unknown) of the log's first rows.

    Raises TraceError.
    """
    answers: list[int] = []
    prompts: list[tuple[int, int]] = []
    for row in islice(_rows(lines), HEAD_ROWS):
        if row.output_tokens and not row.has_left:
            answers.append(row.output_tokens)
        if row.prompt_tokens and row.blocks:
            prompts.append((row.prompt_tokens, len(row.blocks) // BLOCK_BYTES))
        if lines.position()[0] > HEAD_BYTES:
            break
    usual = round(sum(answers) / len(answers)) if answers else 0
    return _tokens_per_block(prompts), usual


def _tokens_per_block(prompts: list[tuple[int, int]]) -> int:
    """Estimate the tokens per block from the engines' counts of prompt tokens.

    `prompts`: pairs of tokens and full blocks. A prompt with n full blocks has n + 0.5 blocks on
    average. The log truncates the blocks of long prompts, so prompts with the largest number of
    blocks are ignored.
    """
    most = max((blocks for _, blocks in prompts), default=0)
    below = [(tokens, blocks) for tokens, blocks in prompts if blocks < most]
    if len(below) < _ROWS_MIN:
        return _BLOCK_TOKENS
    return max(1, round(sum(t for t, _ in below) / sum(n + 0.5 for _, n in below)))
