"""Reads the YAML file with the types of replicas, their throughput and cost, and the limits of a
plan.

`deploy/plan.yaml` is an example with all settings. The syntax is that of the router's
configuration: durations have a unit, and all problems are reported at once. Must never: guess a
throughput.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Annotated

import msgspec

from router.config.decode import decode
from router.config.document import parse_document
from router.config.load import read_text
from router.config.model.setting_types import CountOrNone, Frozen, Seconds, SecondsOrOff
from router.config.problems import Problems

Rate = Annotated[float, msgspec.Meta(gt=0.0, le=1e9)]  # tokens/s
Cost = Annotated[float, msgspec.Meta(ge=0.0, le=1e9)]
Part = Annotated[float, msgspec.Meta(gt=0.0, le=1.0)]  # a share above 0 and at most 1

# The same share in SageServe (arXiv 2502.14617): 0.1 of the non-interactive demand.
BATCH_SHARE = 0.1
REPLICAS_MAX = 100_000  # maximum number of replicas of one type for one model in one region


class ModelSpeed(Frozen, frozen=True):
    """The throughput of one model on one type of replica, and the allowed numbers of replicas.

    The throughput is what a replica serves within the SLO.
    """

    # Uncached prompt tokens/s of a replica that only prefills. It is given together with `decode`.
    prefill: Rate | None = None
    # Output tokens/s of a replica that only decodes, with as many sequences as the SLO allows.
    decode: Rate | None = None
    # Prompt and output tokens/s for the usual mix of them. It is given instead of `prefill` and
    # `decode`.
    throughput: Rate | None = None
    min: CountOrNone = 0  # Minimum number of replicas in each region.
    max: CountOrNone = REPLICAS_MAX  # Maximum number of replicas in each region.

    def load(self, prompt_per_s: float, output_per_s: float) -> float:
        """Return the number of replicas that this demand keeps busy, if each is used completely."""
        if self.throughput is not None:
            return (prompt_per_s + output_per_s) / self.throughput
        assert self.prefill is not None and self.decode is not None  # checked by `parse`
        return prompt_per_s / self.prefill + output_per_s / self.decode


class ReplicaType(Frozen, frozen=True):
    """One type of replica, such as a replica on one kind of GPU."""

    name: str
    cost: Cost  # Cost of a replica per hour, in any currency.
    models: dict[str, ModelSpeed]  # By the model names of the log; "*": every other model.
    lead_s: SecondsOrOff = 180.0  # Seconds from the decision to start a replica until it serves.
    # Cost of one start, in the currency of `cost`. Unset: the cost of a replica for `lead_s`.
    start_cost: Cost | None = None
    regions: tuple[str, ...] = ("",)  # Regions that have this type. [""]: the only region.
    total: CountOrNone | None = None  # Maximum number in one region, for all models.

    @property
    def per_start(self) -> float:
        """The cost of one start."""
        return self.cost * self.lead_s / 3600.0 if self.start_cost is None else self.start_cost

    def speed(self, model: str) -> ModelSpeed | None:
        """Return the speed of a model on this type; None: the type does not serve the model."""
        return self.models.get(model, self.models.get("*"))


class Shift(Frozen, frozen=True):
    """Requests of clients in one region may be served by replicas in another region."""

    source: str  # The region of the clients.
    target: str  # The region of the replicas.
    share: Part = 1.0  # Maximum share of the demand of `source` that may move.


class Reactive(Frozen, frozen=True):
    """The settings of the reactive rule, which needs no forecast.

    The rule compares the utilisation of the replicas with two thresholds.
    """

    up: Part = 0.7  # Above this utilisation, replicas are started until it is below.
    # Below this utilisation, one replica is stopped.
    down: Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)] = 0.35


class Types(Frozen, frozen=True):
    """The content of the file."""

    types: tuple[ReplicaType, ...]
    utilisation: Part = 0.8  # Maximum share of a replica's throughput that a plan uses.
    period_s: Seconds = 3600.0  # Seconds until the next plan. Costs are counted for this time.
    # Replicas are stopped only if their utilisation will stay below this share. The utilisation is
    # that of the present replicas with the demand forecast for `scale_in_horizon_s`.
    scale_in_below: Part = 0.6
    scale_in_horizon_s: Seconds = 7200.0
    # Seconds after a start or stop in which no replica is stopped.
    cooldown_s: SecondsOrOff = 1800.0
    shift: tuple[Shift, ...] = ()  # Demand that may be served in another region; default: none.
    # The share of the demand of class batch that gets capacity of its own. The remaining batch
    # requests use the capacity that the other classes leave.
    batch: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = BATCH_SHARE
    reactive: Reactive = Reactive()
    # If the error of a forecast on held-out windows (WAPE) is above this share, the reactive rule
    # decides.
    error_limit: Part = 0.35

    @property
    def horizon_s(self) -> float:
        """The number of seconds that a forecast must reach ahead."""
        leads = [one.lead_s for one in self.types]
        return max(max(leads, default=0.0) + self.period_s, self.scale_in_horizon_s)

    @property
    def regions(self) -> tuple[str, ...]:
        """All regions, in the order of the file."""
        return tuple(dict.fromkeys(region for one in self.types for region in one.regions))

    def type_of(self, stated: str) -> str | None:
        """Return the name of the type of a replica; None: the file does not have this type.

        `stated`: the type in the router's configuration. If the file has only one type, it is the
        type of every replica without a stated type.
        """
        if any(one.name == stated for one in self.types):
            return stated
        return self.types[0].name if len(self.types) == 1 and not stated else None


def load(path: str | PathLike[str]) -> Types:
    """Read the file. Raises ConfigError with every problem."""
    problems = Problems()
    text = read_text(path, problems)
    problems.raise_if_any()
    return parse(text)


def parse(text: str) -> Types:
    """Parse the text of the file. Raises ConfigError with every problem."""
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
    """Return a single type of replica, with throughputs that were measured in a log.

    `rates`: tokens/s by model. A replica costs 1 per hour.
    """
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
