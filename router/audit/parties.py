"""Who sent a request, as far as its line tells, and how to call them.

A party is a tenant in a class: what a tenant does in a batch and what it does in a chat are told
apart, because only one of them can be moved out of the way. Where no line names a tenant, the
client's address stands for it, and where there is but one address, the model; the report says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple

from router.audit.rows import Row

By = Literal["tenant", "class", "model"]
Grouping = Literal["tenant", "class", "model", "client"]  # by what they are really told apart

OTHERS: Final = "all others"
HEAD_ROWS: Final = 10_000  # looked at to see which names the log has


class Party(NamedTuple):
    name: str  # "": the line has none
    priority: str  # its class, "" where there is none or it does not matter


def told_by(by: By, head: Iterable[Row]) -> Grouping:
    """What to tell requests apart by; `by` is what is asked for, `head` some of them."""
    if by != "tenant":
        return by
    clients: set[str] = set()
    for row in head:
        if row.tenant:
            return "tenant"
        if row.replica:
            clients.add(row.client)
    return "client" if len(clients) > 1 else "model"


def namer(told: Grouping) -> Callable[[Row], Party]:
    """Whose request a row is."""
    if told == "tenant":
        return lambda row: Party(row.tenant, row.priority)
    if told == "client":
        return lambda row: Party(row.client, row.priority)
    if told == "class":
        return lambda row: Party(row.priority, "")
    return lambda row: Party(row.model or "", "")


def label(party: Party, told: Grouping) -> str:
    """`tenant 3f9a0c61d2b4 (batch)`; in words where a line named nobody."""
    if party.name == OTHERS:
        name = OTHERS
    elif party.name:
        name = f"{told} {party.name}"
    else:
        name = {"class": "no class", "model": "no model"}.get(told, f"no {told}")
    return f"{name} ({party.priority})" if party.priority else name
