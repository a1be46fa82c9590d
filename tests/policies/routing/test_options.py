"""Options out of their range are refused by name."""

import pytest

from policies.contract import PolicyConfigError, make_policy

NAN, INF = float("nan"), float("inf")
WEIGHT = (-1, NAN, INF)
REFUSED: dict[str, dict[str, tuple[float, ...]]] = {
    "kv_aware": {
        "miss_cost": (0.9,),
        "batch": (0,),
        "kv_full": (0, 1.5),
        "queue_depth": (0,),
        "relative": (0.9,),
        "absolute": (-1, NAN),
    },
    "session": {"relative": (0.5,), "absolute": (-1,)},
    "prefix_affinity": {
        "min_match": (-0.1, 1.1),
        "relative": (0.9, INF, NAN),
        "absolute": (-1, NAN),
    },
    "chwbl": {"depth": (0,), "relative": (0.5,), "absolute": (-1,)},
    "gain": {"near": (0.0, 1.0), "doubt": (0.0,), "first": (-1.0,), "long_tokens": (-1,)},
    "weighted": dict.fromkeys(("queue", "kv", "prefix", "load", "tokens"), WEIGHT),
}


@pytest.mark.parametrize(
    ("policy", "option", "value"),
    [(p, o, v) for p, options in REFUSED.items() for o, values in options.items() for v in values],
)
def test_an_option_out_of_range_is_refused(policy: str, option: str, value: float) -> None:
    with pytest.raises(PolicyConfigError) as caught:
        make_policy(policy, {option: value})
    assert caught.value.option == option
