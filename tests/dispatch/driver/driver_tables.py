"""Tables of events for tests of the request driver.

A case is a table. Each row has an event and, after the arrow, all resulting actions of the drivers
in their order; `nothing`: no action. `send`, `retry`, `copy` and `continue` begin an attempt;
`drop`, `discard` and `release` end one. After each row the leases and budgets are checked; after
the last row nothing may be left. `stories` reads several cases from one text: the name of a case,
the settings of its world in brackets, and its table, indented.
"""

import re
from collections.abc import Callable, Mapping
from textwrap import dedent
from typing import Any

import pytest

from policies.allowed import Allowed
from router.config.model import (
    Hedging,
    Queue,
    Retry,
    Timeouts,
)
from router.core.errors import Reason
from router.core.urgency import NUMBERS
from router.dispatch.driver.attempt_state import Attempt
from router.dispatch.driver.retries import leave
from router.fleet.context import ContextLengths
from router.fleet.membership import Duty
from tests.dispatch.driven import Driven, World

HEDGED = Hedging(policy="fixed", options={"delay_s": 1.0}, classes=tuple(NUMBERS), budget=1.0)
QUEUED = Queue(order="strict", policy="fifo")
TIMES = Timeouts(first_token_s=4.0, whole_s=8.0, token_gap_s=2.0)
NO_RETRY = Retry(budget=0.0, budget_min=0, backoff_s=0.0)
PAUSES = Retry(backoff_s=0.25)  # the pause before a retry is at most 0.25 s

# -- events ---------------------------------------------------------------------------------------


def attempt_of(request: Driven, replica: str) -> Attempt:
    (found,) = [a for a in request.driver.state.live if a.replica_id == replica]
    return found


# Events from a replica to a request: "r0 refuses a".
REPLICA: dict[str, Callable[[Driven, Attempt], None]] = {
    "accepts": lambda r, a: r.connects(a),
    "shows": lambda r, a: r.shows(a),
    "ends": lambda r, a: r.whole(a),
    "refuses": lambda r, a: r.fails(a, Reason.CONNECT_FAILED),
    "resets": lambda r, a: r.fails(a, Reason.REPLICA_RESET),
    "was-stale-for": lambda r, a: r.fails(a, Reason.REPLICA_RESET, unread=True),
    "garbles": lambda r, a: r.fails(a, Reason.BAD_RESPONSE),
    "says-401-to": lambda r, a: r.errs(a, 401),
    "says-400-to": lambda r, a: r.errs(a, 400),
    "says-500-to": lambda r, a: r.errs(a, 500),
    "400s": lambda r, a: r.answers(a, Reason.REPLICA_REFUSED),
    "500s": lambda r, a: r.answers(a, Reason.SERVER_ERROR),
    "503s": lambda r, a: r.answers(a, Reason.REPLICA_BUSY),
    "errs-in-the-stream-of": lambda r, a: r.answers(a, Reason.STREAM_ERROR),
    "knows-no-priority-of": lambda r, a: r.asks_without_priority(a),
}

# Events of a replica: "r0 leaves".
FLEET: dict[str, Callable[[World, str], object]] = {
    "leaves": lambda w, id: w.fleet.remove(id),
    "joins": lambda w, id: w.joins(id),
    "joins-untried": lambda w, id: w.joins(id, is_tried=False),
    "proves-good": lambda w, id: w.fleet.probes.probed(w.fleet.replicas[id], True),
    "goes-down": lambda w, id: w.goes_down(id),
    "refuses-all": lambda w, id: w.refusing.add(id),
    "grows": lambda w, id: w.grows(id),
    "drains": lambda w, id: w.fleet.set_duty(w.fleet.replicas[id], Duty.DRAINING),
    "serves-again": lambda w, id: w.fleet.set_duty(w.fleet.replicas[id], Duty.IN_SERVICE),
}
# Regions that requests may use.
ALLOWED = {
    "us": Allowed(["us"]),
    "eu": Allowed(["eu"]),
    "eu-us": Allowed(["eu", "us"]),
    "mars": Allowed(["mars"]),
    "all": None,
}


def arrives(world: World, name: str, how: list[str]) -> None:
    options: dict[str, Any] = {
        "whole": {"streamed": False},
        "once": {"repeatable": False},
        "single": {"hedged": False},
        "continued": {"continued": True},
        "light": {"light": True},
        "limited": {"key": "limited", "concurrency": world.concurrency},
        "by-k": {"key": "k"},
        "near-us": {"region": "us"},
        "long": {"output_limit": 2000},
        "too-long": {"output_limit": 5000},
        "by-another-name": {"model": "another name"},
    }
    urgency, arguments = "normal", {}
    for word in how:
        if word in NUMBERS:
            urgency = word
        elif word in options:
            arguments.update(options[word])
        elif word in ALLOWED:
            arguments["allowed"] = ALLOWED[word]
        else:
            arguments["pinned"] = word
    world.arrives(name, urgency, **arguments)


def happen(world: World, event: str) -> None:
    subject, verb, *rest = event.split()
    if verb == "arrives":
        arrives(world, subject, rest)
    elif verb == "leaves" and not subject.startswith("r"):
        world.of(subject).leaves()
    elif verb == "forgets":
        world.of(subject).body = None  # the request's body was too large to keep
    elif verb == "yields":
        request = world.of(subject)
        assert world.queue is not None and request.ticket is not None
        world.queue.recall(request.ticket, world.time.at)
    elif verb == "may-use":
        world.of(subject).limit_regions(ALLOWED[rest[0]])
    elif verb == "must-leave":  # its replica goes away
        driver = world.of(subject).driver
        if not leave(driver, driver.state.live[0], world.time.at):
            world.said.append(f"{subject} stays")
    elif verb == "moves-to":
        world.moves(subject, rest[0])
    elif verb == "has-a-context-of":
        world.fleet.replicas[subject].listed.lengths = ContextLengths({}, int(rest[0]))
        world.fleet.rebuild()
    elif verb == "shuts":  # its gate, for a time
        assert world.queue is not None
        world.queue.pools.unreached(world.fleet.replicas[subject], world.time.at)
    elif verb == "passes":
        world.time.passes(float(subject.removesuffix("s")))
    elif verb == "closes":
        world.context.closing = True
    elif verb in FLEET:
        FLEET[verb](world, subject)
    else:
        request = world.of(rest[0])
        REPLICA[verb](request, attempt_of(request, subject))
    world.time.turn()


def play(world: World, table: str) -> None:
    for row in table.strip().splitlines():
        event, expected = (half.strip() for half in row.split("->"))
        world.said.clear()
        happen(world, event)
        assert "; ".join(world.said) == expected.replace("nothing", ""), event
        world.check()


def case(name: str, table: str, **settings: Any) -> Any:
    return pytest.param(table, settings, id=name)


# Settings of a world by the words in brackets after the name of a case.
SETTINGS: dict[str, dict[str, Any]] = {
    "no budget": {"retry": NO_RETRY},
    "pauses": {"retry": PAUSES},
    "copies": {"hedging": HEDGED},
}
_HEADING = re.compile(r"(.*?)(?: \[(.*)\])?")
_NUMBER = {"replica": "replicas", "replicas": "replicas", "each": "most"}


def stories(text: str, more: Mapping[str, dict[str, Any]] | None = None) -> list[Any]:
    """Return the cases of a text. `more`: further settings by their words."""
    known = {**SETTINGS, **(more or {})}
    cases: list[Any] = []
    rows: list[str] = []
    for line in dedent(text).strip().splitlines():
        if line.startswith(" "):
            rows.append(line)
            continue
        heading = _HEADING.fullmatch(line)
        assert heading is not None
        settings: dict[str, Any] = {}
        for word in (heading[2] or "").split(", ") if heading[2] else ():
            number, _, unit = word.partition(" ")
            settings |= {_NUMBER[unit]: int(number)} if unit in _NUMBER else known[word]
        rows = []
        cases.append((heading[1], rows, settings))
    return [case(name, "\n".join(rows), **settings) for name, rows, settings in cases]


def run(table: str, settings: dict[str, Any]) -> World:
    world = World(**settings)
    play(world, table)
    world.check_empty()
    return world
