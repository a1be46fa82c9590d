"""The batch knows in advance which request ends or needs a block; removal undoes its entries."""

from hypothesis import given, strategies as st

from router.lab.emulator.core.batch import Batch
from router.lab.emulator.core.request import Request

SIZE = 4
sizes = st.lists(st.tuples(st.integers(1, 20), st.integers(2, 60)), min_size=1, max_size=6)


def decoding(sizes: list[tuple[int, int]]) -> Batch[Request]:
    """Requests of (prompt, output) tokens, all of which got their first token from step 1."""
    batch: Batch[Request] = Batch(SIZE)
    for number, (prompt, output) in enumerate(sizes):
        request = Request(str(number), prompt, output)
        request._target = prompt
        batch.admit(request)
        batch.decode(request, 1)
    return batch


def grow(batch: Batch[Request], until: int) -> int:
    """Blocks that begin up to this step."""
    taken = 0
    while batch.growing(until) is not None:
        batch.grown()
        taken += 1
    return taken


@given(sizes, st.integers(0, 40))
def test_it_is_quiet_until_the_first_end_or_the_first_block_that_is_not_there(
    sizes: list[tuple[int, int]], free: int
) -> None:
    batch = decoding(sizes)
    grow(batch, 2)
    foreseen = batch.quiet_until(free)
    ends = min(output for _, output in sizes)
    step, left = 2, free
    while step < ends:
        left -= grow(batch, step + 1)
        if left < 0:
            break
        step += 1
    assert foreseen == step


@given(sizes)
def test_each_takes_a_block_for_each_it_begins_and_ends_with_its_last_step(
    sizes: list[tuple[int, int]],
) -> None:
    batch = decoding(sizes)
    ended: list[Request] = []
    taken = 0
    for step in range(2, 61):
        taken += grow(batch, step)
        batch.decoded(1)
        ended += batch.finished(step)
    blocks = [-(-(prompt + output - 1) // SIZE) - -(-prompt // SIZE) for prompt, output in sizes]
    assert taken == sum(blocks)
    # Requests are sorted by their last step, then by the order in which they began to decode.
    order = sorted(range(len(sizes)), key=lambda number: sizes[number][1])
    assert [request.id for request in ended] == [str(number) for number in order]
    assert (len(batch), batch.context) == (0, 0)


@given(sizes, st.integers(1, 60))
def test_an_aborted_request_leaves_no_blocks(sizes: list[tuple[int, int]], steps: int) -> None:
    batch = decoding(sizes)
    for step in range(2, steps + 1):
        grow(batch, step)
        batch.decoded(1)
        batch.finished(step)
    for request in batch.rows():
        batch.remove(request, steps)
        assert request.generated == steps
    assert (len(batch), batch.context) == (0, 0)
    assert batch.growing(10**9) is None
    assert not any(batch.finished(step) for step in range(1, 62))
