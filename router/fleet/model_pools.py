"""Groups the replicas of a fleet into pools by model, and counts the fit replicas of each pool.

A pool is the set of replicas that serve the same models. The ejection limit and the panic threshold
apply to each pool separately, because a healthy pool of another model does not help a request.

The pools are rebuilt whenever the fleet changes. The cost is proportional to the total length of
the distinct model lists, not to models times replicas: a thousand replicas that serve the same five
hundred models form one pool.

Must never: read a clock, or change a replica.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from router.fleet.replica import Replica

Models = frozenset[str] | None


class ModelPool:
    """A pool: the replicas that serve the models in `names`."""

    __slots__ = ("candidates", "ejected", "fit", "is_panicking", "meant", "members", "names")

    def __init__(self, members: Sequence[Replica]) -> None:
        self.names: list[str] = []  # Empty if the members list no models.
        self.members = members  # The replicas of the pool, in the order of the fleet.
        self.candidates = members  # Members that may get requests.
        self.fit = len(members)  # Number of members that are up and not ejected.
        # Number of members that are meant to serve. A member that is down counts, because it is
        # missed; a member on standby is not.
        self.meant = len(members)
        self.ejected = 0  # Number of ejected members that are meant to serve.
        # True: so few members are fit that ejected members that are up also get requests.
        self.is_panicking = False

    def judge(
        self, away: Collection[Replica], ejected: Collection[Replica], panic_share: float
    ) -> None:
        """Determine the members that may get requests. `away`: see `Replica.is_away`."""
        up = fit = members = self.members
        if away or ejected:
            up = [r for r in members if r not in away]
            fit = [r for r in up if r not in ejected]
            meant = [r for r in members if r.is_meant_to_serve]
            self.meant = len(meant)
            self.ejected = sum([r in ejected for r in meant])
        self.fit = len(fit)
        # If only the few fit members got requests, the load of the whole pool would overload them.
        self.is_panicking = len(fit) < len(up) and len(fit) < panic_share * self.meant
        self.candidates = up if self.is_panicking else fit

    def may_eject(self, is_fit: bool, share: float) -> bool:
        """Return whether one more member may be ejected.

        `is_fit`: the member to eject is still fit.
        """
        if self.fit - is_fit < 1:
            return False
        return self.ejected + 1 <= max(1, int(self.meant * share))


class ModelPools:
    """All pools of a fleet."""

    __slots__ = ("_of", "all", "any", "names")

    def __init__(self, replicas: Iterable[Replica] = ()) -> None:
        members = list(replicas)
        places: dict[Models, list[int]] = {}  # Model list -> indexes of its replicas in `members`.
        for place, replica in enumerate(members):
            places.setdefault(replica.models, []).append(place)
        self._of: dict[Models, tuple[Models, list[ModelPool]]] = {m: (m, []) for m in places}
        lists = [models for models in places if models is not None]
        who: dict[str, list[int]] = {}  # Model -> indexes in `lists` of the lists that name it.
        for number, models in enumerate(lists):
            for name in models:
                who.setdefault(name, []).append(number)
        # A replica whose models are unknown serves any model. It is in a pool only if no replica of
        # the fleet has a known model list.
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
        """Return the pools of a replica that has this model list."""
        found = self._of.get(models)
        return [] if found is None else found[1]

    def same(self, models: frozenset[str]) -> frozenset[str]:
        """Return an equal list that another replica already uses, else `models`.

        Comparing two lists is fast if they are the same object.
        """
        found = self._of.get(models)
        return models if found is None or found[0] is None else found[0]
