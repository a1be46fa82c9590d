"""The ordered container of all queues, compared with a sorted list."""

from random import Random

from hypothesis import given, strategies as st

from policies.queueing.ranked import FRONT, Ranked
from policies.queueing.ticket import Item
from tests.examples import examples


@examples(60)
@given(st.integers(0, 10**6), st.sampled_from((3, 70, 400)))
def test_it_is_a_sorted_list_whatever_is_done_to_it(seed: int, size: int) -> None:
    rng = Random(seed)
    ranked = Ranked()
    model: dict[Item, tuple[float, int]] = {}

    def sorted_items() -> list[Item]:
        return sorted(model, key=lambda item: model[item])

    for order in range(1, 1501):
        act = rng.random()
        if len(model) < size and act < 0.55:
            item = Item()
            key = (rng.choice((1.0, rng.random(), float(order))), order)
            ranked.add(item, *key)
            model[item] = key
        elif model and act < 0.8:
            item = rng.choice(list(model)) if act < 0.65 else ranked.first()
            ranked.remove(item)
            del model[item]
            if rng.random() < 0.3:  # the item returns to its old position
                ranked.add(item, 0.5, order)
                model[item] = (0.5, order)
        elif model:
            item = rng.choice(list(model))
            key = (rng.random(), model[item][1])
            ranked.move(item, *key)
            model[item] = key
        assert ranked.count == len(model)
        assert ranked.held() <= 2 * ranked.count + 3 * FRONT
        if order % 20 == 0:
            inorder = sorted_items()
            assert ranked.first() is (inorder[0] if inorder else None)
            assert ranked.leading(FRONT, 2e9) == inorder[:FRONT]
            assert ranked.leading(3, 2e9) == inorder[:3]
            if inorder:
                assert (ranked.first_key(), ranked.first_order()) == model[inorder[0]]
                limit = model[inorder[0]][0]
                equal = [item for item in inorder if model[item][0] <= limit]
                assert ranked.leading(FRONT, limit) == equal[:FRONT]
    for item in sorted_items():
        assert ranked.first() is item
        ranked.remove(item)
    assert ranked.first() is None


def test_what_leaves_from_the_middle_is_swept_away() -> None:
    ranked = Ranked()
    items = [Item() for _ in range(10_000)]
    for number, item in enumerate(items):
        ranked.add(item, float(number), number)
    for item in items[100:]:
        ranked.remove(item)
    assert ranked.held() < 100 + 3 * FRONT
