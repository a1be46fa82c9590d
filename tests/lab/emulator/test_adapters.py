"""The adapters in the memory of an emulated engine."""

from router.lab.emulator.engine import AdapterPool


def test_the_least_recently_used_adapter_is_replaced() -> None:
    pool = AdapterPool(2, 0.5)
    assert [pool.use(name) for name in "abacb"] == [0.5, 0.5, 0.0, 0.5, 0.5]
    assert (pool.loads, pool.used) == (4, 2)
