"""The sums of a quota: bytes and files, by owner and in all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.batches.api.asked import Refused
from router.batches.quota import Usage, check_quota
from router.config.model import Batches


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=40))
def test_sums_come_to_nothing_when_all_is_gone(files: list[tuple[str, int]]) -> None:
    rules = Batches(files=5, bytes=20, files_total=8, bytes_total=40)
    found = Usage()
    kept: list[tuple[str, int]] = []
    for owner, size in files:
        try:
            check_quota(rules, found, owner, 1, size)
        except Refused as err:
            mine = [s for o, s in kept if o == owner]
            sizes = sum(s for _, s in kept)
            own = len(mine) == 5 or sum(mine) + size > 20
            assert own if err.status == 403 else len(kept) == 8 or sizes + size > 40
            continue
        kept.append((owner, size))
        found.add(owner, 1, size)
    assert (found.files, found.bytes) == (len(kept), sum(size for _, size in kept))
    for owner, size in kept:
        found.add(owner, -1, -size)
    assert (found.files, found.bytes, found._owners) == (0, 0, {})
