"""Shared strategies for requests and answers: odd values, repeated units, cuts and chunks."""

from typing import Any

from hypothesis import strategies as st

from tests.abuse.dense import MIB, NAMES, dense
from tests.harness.messages import LAST_CHUNK

Bytes = st.SearchStrategy[bytes]

LARGE = 300_000  # usual maximum size of one drawn part, in bytes
HUGE = 7 * MIB  # size in bytes of a rare huge part; the whole body stays just below 8 MiB
CHUNKS = 30_000  # maximum number of chunks per message


@st.composite
def often(draw: st.DrawFn, usual: Any, odd: st.SearchStrategy[Any], times: int = 3) -> Any:
    """Draw the usual value `times` times as often as an odd one.

    `one_of` with a repeated strategy does not work: hypothesis counts a repeated strategy once.
    """
    return draw(odd) if draw(st.sampled_from([False] * times + [True])) else usual


# Sizes of a dense content in bytes. Huge contents are rare, because they determine the duration of
# a round.
SIZES_OF_DENSE = st.sampled_from([64] * 6 + [3_000] * 14 + [60_000] * 8 + [LARGE] * 6 + [MIB, HUGE])
DENSE: Bytes = st.builds(dense, st.sampled_from(NAMES), SIZES_OF_DENSE)


def repeated(unit: Bytes, most: int = LARGE) -> Bytes:
    """One unit of bytes, repeated: the result is large, but its bytes are not drawn one by one."""

    def build(part: bytes, count: int) -> bytes:
        return part * min(count, most // max(1, len(part)))

    return st.builds(build, unit, st.sampled_from([0, 1, 3, 3, 50, 50, 1000, 20_000, most]))


NOISE = st.binary(max_size=200)
TEXT = st.text(st.characters(codec="utf-8"), max_size=60)
UNITS = st.one_of(
    st.sampled_from(
        [b" ", b"\n", b"[", b'{"a":', b'"a",', b"\\", b"\xff", b"0", b"\x00", b"--b\r\n"]
    ),
    st.binary(min_size=1, max_size=8),
)
NUMBERS = st.one_of(
    st.integers(-3, 120),
    st.sampled_from([10**20, -(10**20), 10**400, 0.5, -0.0, 1e308]),
)
VALUES = st.one_of(NUMBERS, TEXT, st.booleans(), st.none(), st.lists(NUMBERS, max_size=3))

# Sizes of the pieces in which bytes are sent; empty: all at once. `(200_000, 1, …)`: one large
# read, then single bytes.
SIZES = st.one_of(
    st.just(()),
    st.just(()),
    st.sampled_from([(1,), (1400,), (65_536,), (262_144,), (200_000, *(1,) * 200)]),
    st.lists(st.integers(1, 3000), min_size=1, max_size=4).map(tuple),
)
CHUNK_SIZES = st.sampled_from([1, 7, 100, 65_536, 16 * MIB])
EXTENSIONS = st.sampled_from(
    [b"", b"", b"", b"", b";a=b", b";a=b", b';a="' + b"b" * 300 + b'"', b" ", b";" * 9]
)


def chunked(data: bytes, size: int, extension: bytes, end: bytes = LAST_CHUNK) -> bytes:
    """Frame the bytes as chunks of this size, or of a larger size if there would be too many
    chunks.
    """
    size = max(size, len(data) // CHUNKS)
    pieces = (data[at : at + size] for at in range(0, len(data), size))
    return b"".join(b"%x%b\r\n%b\r\n" % (len(p), extension, p) for p in pieces) + end
