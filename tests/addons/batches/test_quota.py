"""The sums of a quota: bytes and files, by owner and in all."""

import pytest
from hypothesis import given, strategies as st

from router.addons.batches.api.asked import Refused
from router.addons.batches.quota import Usage, check_quota
from router.config.model import Batches


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "key:c"]), st.integers(0, 9)), max_size=40))
def test_sums_come_to_nothing_when_all_is_gone(files: list[tuple[str, int]]) -> None:
    rules = Batches(files=5, bytes=20, files_total=8, bytes_total=40, keyless_share=0.5)
    found = Usage()
    kept: list[tuple[str, int]] = []
    for owner, size in files:
        try:
            check_quota(rules, found, owner, 1, size)
        except Refused as err:
            mine = [s for o, s in kept if o == owner]
            sizes = sum(s for _, s in kept)
            own = len(mine) == 5 or sum(mine) + size > 20
            keyless = [s for o, s in kept if o != "key:c"]
            of_all = len(kept) == 8 or sizes + size > 40
            of_keyless = owner != "key:c" and (len(keyless) == 4 or sum(keyless) + size > 20)
            assert own if err.status == 403 else of_all or of_keyless
            continue
        kept.append((owner, size))
        found.add(owner, 1, size)
    assert (found.files, found.bytes) == (len(kept), sum(size for _, size in kept))
    keyless = [size for owner, size in kept if owner != "key:c"]
    assert (found.keyless_files, found.keyless_bytes) == (len(keyless), sum(keyless))
    assert len(keyless) <= 4
    assert sum(keyless) <= 20
    for owner, size in kept:
        found.add(owner, -1, -size)
    assert (found.files, found.bytes, found._owners) == (0, 0, {})
    assert (found.keyless_files, found.keyless_bytes) == (0, 0)


def test_results_beyond_the_part_of_owners_without_a_key_take_nothing_from_the_others() -> None:
    rules = Batches(files_total=10, bytes_total=100, keyless_share=0.2)
    found = Usage()
    found.add("hash", 50, 500)  # result files are stored above every limit
    check_quota(rules, found, "key:a", 8, 80)
    for files, size in ((9, 80), (8, 81)):
        with pytest.raises(Refused):
            check_quota(rules, found, "key:a", files, size)
    with pytest.raises(Refused):
        check_quota(rules, found, "hash", 0, 0)
