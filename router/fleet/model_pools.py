"""The replicas of a fleet by the models that they serve, and how many of each pool are fit.

A pool is the replicas that serve the same models. The limit of ejections and the panic threshold
hold for each pool by itself: a healthy pool of another model helps no request.

The pools are built anew whenever the fleet changes. That costs as much as the distinct lists of
models are long, not models times replicas: a thousand replicas that serve the same five hundred
models are one pool.

Must never: look at a clock, or change a replica.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from router.fleet.replica import Replica

Models = frozenset[str] | None


class ModelPool:
    """The replicas that serve the models `names`."""

    __slots__ = ("candidates", "ejected", "fit", "is_panicking", "members", "names")

    def __init__(self, members: Sequence[Replica]) -> None:
        self.names: list[str] = []  # empty: the members list no models
        self.members = members  # in the order of the fleet
        self.candidates = members  # those that requests may go to
        self.fit = len(members)  # up and not ejected
        self.ejected = 0
        self.is_panicking = False  # so few are fit that every replica that is up is a candidate

    def judge(
        self, away: Collection[Replica], ejected: Collection[Replica], panic_share: float
    ) -> None:
        """Find the candidates. `away`: replicas that are down or asleep."""
        up = fit = members = self.members
        if away or ejected:
            up = [r for r in members if r not in away]
            fit = [r for r in up if r not in ejected]
            self.ejected = sum([r in ejected for r in members])
        self.fit = len(fit)
        # The few that are left would drown.
        self.is_panicking = len(fit) < len(up) and len(fit) < panic_share * len(members)
        self.candidates = up if self.is_panicking else fit

    def may_eject(self, is_fit: bool, share: float) -> bool:
        """Whether one more member may be ejected, which `is_fit` or is out for another reason."""
        if self.fit - is_fit < 1:
            return False
        return self.ejected + 1 <= max(1, int(len(self.members) * share))


class ModelPools:
    """All pools of a fleet."""

    __slots__ = ("_of", "all", "any", "names")

    def __init__(self, replicas: Iterable[Replica] = ()) -> None:
        members = list(replicas)
        places: dict[Models, list[int]] = {}  # list of models -> replicas, by their place
        for place, replica in enumerate(members):
            places.setdefault(replica.models, []).append(place)
        self._of: dict[Models, tuple[Models, list[ModelPool]]] = {m: (m, []) for m in places}
        lists = [models for models in places if models is not None]
        who: dict[str, list[int]] = {}  # model -> the lists that hold it
        for number, models in enumerate(lists):
            for name in models:
                who.setdefault(name, []).append(number)
        # Replicas whose models are not known serve any model; they are alone in their fleet.
        unknown = places.get(None, [])
        assert not unknown or not lists
        pools: dict[tuple[int, ...], ModelPool] = {}
        self.names: dict[str, ModelPool] = {}
        for name, numbers in who.items():
            key = tuple(numbers)
            pool = pools.get(key)
            if pool is None:
                found: list[int] = []
                for number in numbers:
                    found += places[lists[number]]
                pool = pools[key] = ModelPool([members[place] for place in sorted(found)])
                for number in numbers:
                    self._of[lists[number]][1].append(pool)
            pool.names.append(name)
            self.names[name] = pool
        self.all = list(pools.values())
        self.any = ModelPool([members[place] for place in unknown])
        if unknown:
            self.all.append(self.any)
            self._of[None][1].append(self.any)
        none = frozenset[str]()
        if none in places:
            empty = ModelPool([members[place] for place in places[none]])
            self._of[none][1].append(empty)
            self.all.append(empty)

    def of(self, models: Models) -> list[ModelPool]:
        """The pools of a replica with this list of models."""
        found = self._of.get(models)
        return [] if found is None else found[1]

    def same(self, models: frozenset[str]) -> frozenset[str]:
        """The equal list of another replica, if there is one: equal lists are compared quickly
        where they are one object."""
        found = self._of.get(models)
        return models if found is None or found[0] is None else found[0]
