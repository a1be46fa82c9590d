"""The types of replicas, their throughput and cost, and the limits of a plan: one YAML file.

`deploy/plan.yaml` is an example with all settings. The syntax is that of the configuration:
durations have a unit, and one run reports every problem. Must never: guess a throughput.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from os import PathLike
from typing import Annotated

import msgspec

from router.config.decode import decode
from router.config.document import parse_document
from router.config.load import read_text
from router.config.model import CountOrNone, Frozen, Seconds, SecondsOrOff
from router.config.problems import Problems

Rate = Annotated[float, msgspec.Meta(gt=0.0, le=1e9)]  # tokens/s
Cost = Annotated[float, msgspec.Meta(ge=0.0, le=1e9)]
Part = Annotated[float, msgspec.Meta(gt=0.0, le=1.0)]  # a share above 0

REPLICAS_MAX = 100_000  # replicas of one model, region and type


class ModelSpeed(Frozen, frozen=True):
    """One model on one type: what a replica serves within the SLO, and the numbers allowed."""

    # Uncached prompt tokens/s of a replica that only prefills. With `decode`.
    prefill: Rate | None = None
    # Output tokens/s of a replica that only decodes, with as many sequences as the SLO allows.
    decode: Rate | None = None
    # Prompt and output tokens/s, for the usual mix. Instead of `prefill` and `decode`.
    throughput: Rate | None = None
    min: CountOrNone = 0  # Replicas in each region, at least.
    max: CountOrNone = REPLICAS_MAX  # Replicas in each region, at most.

    def load(self, prompt_per_s: float, output_per_s: float) -> float:
        """The replicas that this demand keeps busy, if each is used completely."""
        if self.throughput is not None:
            return (prompt_per_s + output_per_s) / self.throughput
        assert self.prefill is not None and self.decode is not None  # checked by `parse`
        return prompt_per_s / self.prefill + output_per_s / self.decode


class ReplicaType(Frozen, frozen=True):
    """One kind of replica, such as a GPU type."""

    name: str
    cost: Cost  # Per replica and hour, in any currency.
    models: dict[str, ModelSpeed]  # By model name, as in the log; "*": every other model.
    lead_s: SecondsOrOff = 180.0  # From the decision to start a replica until it serves.
    # Of one start, in the currency of `cost`. Unset: the cost of a replica for `lead`.
    start_cost: Cost | None = None
    regions: tuple[str, ...] = ("",)  # Where the type exists. [""]: in the only region.
    total: CountOrNone | None = None  # Replicas of all models in one region, at most.
    # Patterns of the replicas' names in the log, such as "gpu-h100-*". With one type: not needed.
    replicas: tuple[str, ...] = ()

    @property
    def per_start(self) -> float:
        """The cost of one start."""
        return self.cost * self.lead_s / 3600.0 if self.start_cost is None else self.start_cost

    def speed(self, model: str) -> ModelSpeed | None:
        """The speed of a model; None: the type does not serve it."""
        return self.models.get(model, self.models.get("*"))


class Shift(Frozen, frozen=True):
    """Requests of one region may be served in another one."""

    source: str  # The region of the clients.
    target: str  # The region of the replicas.
    share: Part = 1.0  # Of the demand of `source`, at most.


class Reactive(Frozen, frozen=True):
    """The rule that needs no forecast: compares the utilisation with two thresholds."""

    up: Part = 0.7  # Above this utilisation: as many replicas as bring it below.
    down: Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)] = 0.35  # Below this: one replica less.


class Types(Frozen, frozen=True):
    """The whole file."""

    types: tuple[ReplicaType, ...]
    utilisation: Part = 0.8  # Share of a replica's throughput that a plan uses at most.
    period_s: Seconds = 3600.0  # The time until the next plan that is paid for and planned for.
    # Replicas are removed only if the forecast for `scale_in_horizon` keeps the utilisation of the
    # present replicas below this.
    scale_in_below: Part = 0.6
    scale_in_horizon_s: Seconds = 7200.0
    cooldown_s: SecondsOrOff = 1800.0  # No replica is removed for this long after a change.
    shift: tuple[Shift, ...] = ()  # Which demand may move; none by default.
    reactive: Reactive = Reactive()
    error_limit: Part = 0.35  # Above this backtest error (WAPE), the reactive rule decides.

    @property
    def horizon_s(self) -> float:
        """How far a forecast must reach."""
        leads = [one.lead_s for one in self.types]
        return max(max(leads, default=0.0) + self.period_s, self.scale_in_horizon_s)

    @property
    def regions(self) -> tuple[str, ...]:
        """All regions, in the order of the file."""
        return tuple(dict.fromkeys(region for one in self.types for region in one.regions))

    def type_of(self, replica: str) -> str | None:
        """The type of a replica by its name in the log; None: no pattern matches."""
        for one in self.types:
            if any(fnmatchcase(replica, pattern) for pattern in one.replicas):
                return one.name
        is_only = len(self.types) == 1 and not self.types[0].replicas
        return self.types[0].name if is_only else None


def load(path: str | PathLike[str]) -> Types:
    """Read the file. Raises ConfigError with every problem."""
    problems = Problems()
    text = read_text(path, problems)
    problems.raise_if_any()
    return parse(text)


def parse(text: str) -> Types:
    """`load` for the text of a file."""
    problems = Problems()
    data = parse_document(text, problems)
    if problems.is_unreadable:
        problems.raise_if_any()
    found = decode(Types, data, problems)
    if not problems.is_spoiled("types"):
        _check(found, problems)
    problems.raise_if_any()
    return found


def measured(rates: Mapping[str, float], regions: tuple[str, ...]) -> Types:
    """One type with throughputs (tokens/s by model) from a log; a replica costs 1 per hour."""
    models = {name: ModelSpeed(throughput=rate) for name, rate in rates.items()}
    return Types(
        types=(ReplicaType(name="measured", cost=1.0, models=models, regions=regions or ("",)),)
    )


def _check(found: Types, problems: Problems) -> None:
    if not found.types:
        problems.add("types", "must have at least one type")
    names: set[str] = set()
    for number, one in enumerate(found.types):
        here = f"types[{number}]"
        if problems.is_spoiled(here):
            continue
        if not problems.is_spoiled(f"{here}.name"):
            if not one.name:
                problems.add(f"{here}.name", "must not be empty")
            if one.name in names:
                problems.add(f"{here}.name", f"{one.name!r} is the name of another type")
            names.add(one.name)
        if not one.regions:
            problems.add(f"{here}.regions", "must have at least one region")
        if problems.is_spoiled(f"{here}.models"):
            continue
        if not one.models:
            problems.add(f"{here}.models", "must have at least one model")
        for name, speed in one.models.items():
            _check_speed(f"{here}.models.{name}", speed, problems)
    for number, shift in enumerate(found.shift):
        here = f"shift[{number}]"
        for key, region in (("source", shift.source), ("target", shift.target)):
            if region not in found.regions and not problems.is_spoiled(f"{here}.{key}"):
                known = ", ".join(map(repr, found.regions))
                problems.add(f"{here}.{key}", f"unknown region {region!r}; known: {known}")
        if shift.source == shift.target:
            problems.add(here, "source and target must be different regions")
    if found.reactive.down >= found.reactive.up:
        problems.add("reactive.down", "must be below reactive.up")
    if found.scale_in_below > found.utilisation:
        problems.add("scale_in_below", "must not be above utilisation")


def _check_speed(path: str, speed: ModelSpeed, problems: Problems) -> None:
    has_both = speed.prefill is not None and speed.decode is not None
    has_any = speed.prefill is not None or speed.decode is not None
    if problems.is_spoiled(path, f"{path}.prefill", f"{path}.decode", f"{path}.throughput"):
        return
    if (speed.throughput is None) is not has_both or (speed.throughput is not None and has_any):
        problems.add(path, "must have either throughput, or both prefill and decode")
    if speed.min > speed.max:
        problems.add(f"{path}.min", f"must not be above max ({speed.max})")
