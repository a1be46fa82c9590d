"""Finds the party that sent a request, from the request's line in the log, and makes its label.

A party is a tenant in a class. A tenant's batch and chat requests are separate parties, because
only batch requests can be moved to another time. If no line of the log names a tenant, the client's
address distinguishes parties; if there is only one address, the model does. The report states which
attribute was used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple

from router.lab.audit.rows import Row

By = Literal["tenant", "class", "model"]
# The attribute that actually distinguishes parties. It may differ from the requested attribute.
Grouping = Literal["tenant", "class", "model", "client"]

OTHERS: Final = "all others"
HEAD_ROWS: Final = 10_000  # number of rows that are examined to find the available attributes


class Party(NamedTuple):
    name: str  # tenant, address or model; "": the line has none
    priority: str  # class of the request; "" if there is none or it is not used


def told_by(by: By, head: Iterable[Row]) -> Grouping:
    """Return the attribute that distinguishes parties.

    `by`: the requested attribute; `head`: the first rows.
    """
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
    """Return a function that gives the party of a row."""
    if told == "tenant":
        return lambda row: Party(row.tenant, row.priority)
    if told == "client":
        return lambda row: Party(row.client, row.priority)
    if told == "class":
        return lambda row: Party(row.priority, "")
    return lambda row: Party(row.model or "", "")


def label(party: Party, told: Grouping) -> str:
    """Return a label such as `tenant 3f9a0c61d2b4 (batch)`.

    If the line has no tenant, address or model, the label says so.
    """
    if party.name == OTHERS:
        name = OTHERS
    elif party.name:
        name = f"{told} {party.name}"
    else:
        name = {"class": "no class", "model": "no model"}.get(told, f"no {told}")
    return f"{name} ({party.priority})" if party.priority else name
