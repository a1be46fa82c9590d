"""Parsers for the flag values of `hedgerow replay`: policies, fleets, faults, coefficients. All
functions are pure.

Each function parses the text of one flag. It raises ArgumentTypeError with a message for the user;
argparse prints the flag's name before the message.

`Candidate`: makes the configurations to compare: copies of one configuration with other policies.

The routing, order and hedging policies can be replaced. All functions are pure. Must never: change
any other setting.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from policies.contract import PolicyConfigError, make_policy
from policies.hedging.contract import make_policy as make_hedging
from policies.queueing.contract import make_order
from router.config.model import Config
from router.config.varied import varied
from router.lab.emulator.core.timing import Timing
from router.lab.flags import number, whole
from router.lab.simulator.scenario import Fault

SIZES_MAX = 1000  # maximum number of fleet sizes in one replay
REPLICAS_MAX = 100_000  # maximum number of replicas in one fleet


@dataclass(frozen=True, slots=True)
class Choice:
    """A policy and its options. `label` is the text of the flag."""

    label: str
    name: str
    options: Mapping[str, Any]


def policy(text: str) -> Choice:
    """Parse `NAME` or `NAME:option=value,option=value`; values are as in the YAML configuration."""
    return _choice(text, make_policy)


OFF = "off"


def queue(text: str) -> Choice:
    """Parse the order policy of the queue, in the syntax of `policy`; `off`: no queue."""
    return Choice(text, text, {}) if text == OFF else _choice(text, make_order)


def hedging(text: str) -> Choice:
    """Parse a hedging policy, in the syntax of `policy`. `off` is the name of a hedging policy."""
    return _choice(text, make_hedging)


def _choice(text: str, make: Callable[[str, Mapping[str, Any]], object]) -> Choice:
    name, _, rest = text.partition(":")
    options: dict[str, Any] = {}
    for pair in rest.split(",") if rest else []:
        option, is_pair, value = pair.partition("=")
        option = option.strip()
        if not is_pair or not option:
            raise ArgumentTypeError(f"{pair!r} is not option=value (in {text!r})")
        if option in options:
            raise ArgumentTypeError(f"{option} is given twice (in {text!r})")
        try:
            options[option] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ArgumentTypeError(f"{value!r} is not a YAML value (in {text!r})") from None
    try:
        make(name, options)
    except PolicyConfigError as err:
        where = f"{err.option}: " if err.option else ""
        raise ArgumentTypeError(f"{where}{err}") from None
    return Choice(text, name, options)


def sizes(text: str) -> tuple[int, ...]:
    """Parse fleet sizes: `N`, `A..B` or `A..B:STEP`, or a list of these separated by commas.

    Returns the sizes in ascending order without duplicates.
    """
    found: set[int] = set()
    for part in text.split(","):
        span, has_step, step_text = part.partition(":")
        low_text, is_range, high_text = span.partition("..")
        low = whole(low_text, text)
        high = whole(high_text, text) if is_range else low
        step = whole(step_text, text) if has_step else 1
        if has_step and not is_range:
            raise ArgumentTypeError(f"{text!r}: a step needs a range, such as 8..16:2")
        if high < low:
            raise ArgumentTypeError(f"{text!r}: {high} is less than {low}")
        if high > REPLICAS_MAX:
            raise ArgumentTypeError(f"{text!r}: more than {REPLICAS_MAX:,} replicas")
        if len(found) + (high - low) // step + 1 > SIZES_MAX:
            raise ArgumentTypeError(f"{text!r}: more than {SIZES_MAX:,} fleets")
        found.update(range(low, high + 1, step))
    return tuple(sorted(found))


def timing(text: str) -> Timing:
    """Parse `a,b,c,d0,d1,d2` in ms and tokens, as `Timing.text` writes them."""
    parts = text.split(",")
    if len(parts) != 6:
        raise ArgumentTypeError(f"{text!r}: six numbers are needed: a,b,c,d0,d1,d2")
    found = [number(part, text) / 1e3 for part in parts]
    if min(found) < 0.0:
        raise ArgumentTypeError(f"{text!r}: coefficients must be 0 or more")
    return Timing(*found)


def fault(text: str) -> Fault:
    """Parse `kind:replica:at:until`, with times in seconds.

    A fault of the kind `slow` may have a fifth part, its factor.
    """
    parts = text.split(":")
    if len(parts) not in (4, 5):
        raise ArgumentTypeError(f"{text!r} is not kind:replica:at:until[:factor]")
    kind, replica, at, until = parts[:4]
    if kind not in ("slow", "freeze", "kill"):
        raise ArgumentTypeError(f"{text!r}: unknown fault {kind!r}; allowed: slow, freeze, kill")
    if not replica.isascii() or not replica.isdecimal():
        raise ArgumentTypeError(f"{text!r}: {replica!r} is not a replica number (from 0)")
    more = {}
    if len(parts) == 5:
        if kind != "slow":
            raise ArgumentTypeError(f"{text!r}: only slow takes a factor")
        more["factor"] = number(parts[4], text)
    end = float("inf") if until == "inf" else number(until, text)
    try:
        return Fault(
            at=number(at, text),
            replica=int(replica),
            kind=kind,  # type: ignore[arg-type]  # checked above
            until=end,
            **more,
        )
    except ValueError as err:
        raise ArgumentTypeError(f"{text!r}: {err}") from None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration and its label in reports."""

    label: str
    config: Config


def as_configured(config: Config) -> Candidate:
    """Return the unchanged configuration as a candidate."""
    return Candidate(config.routing.policy, config)


def candidates(
    base: Config,
    policies: Sequence[Choice],
    orders: Sequence[Choice],
    hedges: Sequence[Choice],
) -> list[Candidate]:
    """Return every combination of the given policies as a candidate.

    For an empty sequence, the policy of `base` is kept. A routing policy replaces the routing
    policies of all models. An order policy of the queue and a hedging policy keep the other
    settings of their sections of the configuration.
    """
    found = []
    for policy in policies or (None,):
        routed = base if policy is None else _routed(base, policy)
        for order in orders or (None,):
            queued = routed if order is None else _queued(routed, order)
            for hedge in hedges or (None,):
                config = queued if hedge is None else _hedged(queued, hedge)
                label = base.routing.policy if policy is None else policy.label
                label += "" if order is None else f", queue {order.label}"
                label += "" if hedge is None else f", hedging {hedge.label}"
                found.append(Candidate(label, config))
    return found


def _routed(base: Config, choice: Choice) -> Config:
    routing = {"policy": choice.name, "options": dict(choice.options), "models": {}}
    return varied(base, routing=routing)


def _queued(base: Config, choice: Choice) -> Config:
    if choice.name == OFF:
        return varied(base, queue={"enabled": False})
    return varied(
        base, queue={"enabled": True, "policy": choice.name, "options": dict(choice.options)}
    )


def _hedged(base: Config, choice: Choice) -> Config:
    return varied(base, hedging={"policy": choice.name, "options": dict(choice.options)})
