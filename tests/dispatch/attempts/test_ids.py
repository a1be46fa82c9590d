"""Names of requests at engines: long, random, and never the same twice."""

import os
import re

import pytest

from router.dispatch.attempts import ids
from router.dispatch.attempts.ids import LENGTH, Ids


def test_a_name_is_hexadecimal_of_96_bits() -> None:
    made = Ids()
    for _ in range(3 * ids._AT_ONCE):  # beyond the end of several reads of random bytes
        assert re.fullmatch(rb"[0-9a-f]{24}", made.new())
    assert LENGTH * 4 == 96


def test_names_never_repeat() -> None:
    first, second = Ids(), Ids()
    count = 5 * ids._AT_ONCE
    names = {made.new() for made in (first, second) for _ in range(count)}
    assert len(names) == 2 * count


def test_every_name_is_of_the_systems_random_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[bytes] = []
    urandom = os.urandom

    def noted(size: int) -> bytes:
        reads.append(urandom(size))
        return reads[-1]

    monkeypatch.setattr(os, "urandom", noted)
    made = Ids()
    assert reads == []  # nothing is read before the first name
    names = [made.new() for _ in range(ids._AT_ONCE + 1)]
    assert len(reads) == 2
    assert b"".join(names) == b"".join(reads).hex().encode()[: len(names) * LENGTH]
