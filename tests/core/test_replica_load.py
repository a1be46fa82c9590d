"""A new replica's load: all counts are 0, and unknown values are None."""

from router.core.replica_load import UNLIMITED, ReplicaLoad

NOT_ZERO = {
    "id": "r",
    "weight": 1.0,
    "limit": UNLIMITED,
    "kv_reported": -1.0,
    "is_fit": True,
    # Unknown.
    "cadence_s": None,
    "kv_tokens": None,
    "kv_usage": None,
    "models": None,
    "slots": None,
    "ttft_s": None,
    "tpot_s": None,
}


def fields_of(load: ReplicaLoad) -> list[str]:
    return [name for name in dir(load) if not name.startswith("_")]


def test_a_new_load_is_empty_and_unknown() -> None:
    load = ReplicaLoad("r")
    names = fields_of(load)
    names.remove("speed")
    assert not load.speed.is_known
    assert NOT_ZERO.keys() < set(names)
    for name in names:
        assert getattr(load, name) == NOT_ZERO.get(name, 0), name
