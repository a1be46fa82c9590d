"""Every target on its seeds and on inputs near them."""

import pytest
from hypothesis import given, strategies as st

from tests.examples import examples
from tests.fuzz.seeds import SEEDS
from tests.fuzz.targets import TARGETS

TOKENS = st.one_of(
    st.binary(max_size=6),
    st.sampled_from(
        [
            b"\r\n",
            b"\r",
            b"\n\n",
            b"\r\n\r\n",
            b'"',
            b"\\",
            b"{",
            b"]",
            b",",
            b":",
            b";",
            b"--b",
            b"0",
        ]
    ),
)


@st.composite
def near(draw: st.DrawFn, name: str) -> bytes:
    """A seed with a few pieces removed, inserted, doubled or moved."""
    data = draw(st.sampled_from(SEEDS[name]))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 12)))
        piece = data[start:end]
        put = draw(st.one_of(TOKENS, st.just(piece * 2), st.just(b"")))
        data = data[:start] + put + data[end:]
    return data


@pytest.mark.parametrize("name", TARGETS)
def test_seeds(name: str) -> None:
    for seed in SEEDS[name]:
        TARGETS[name](seed)


@pytest.mark.parametrize("name", TARGETS)
def test_near_the_seeds_and_far_from_them(name: str) -> None:
    @examples(400)
    @given(st.one_of(near(name), near(name), st.binary(max_size=300)))
    def fuzz(data: bytes) -> None:
        TARGETS[name](data)

    fuzz()
