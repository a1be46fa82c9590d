"""The default time to a first token of each class, a check of such times, and deadlines."""

from __future__ import annotations

from policies.queueing.contract import PolicyConfigError
from policies.queueing.ticket import Ticket

PerClass = tuple[float, float, float, float, float]  # critical, high, normal, low, batch
SLO_S: PerClass = (0.25, 0.5, 2.0, 10.0, 600.0)


def due(ticket: Ticket, slo_s: tuple[float, ...]) -> float:
    """When a first token is due: by the request's own deadline or its class, whichever is earlier.

    A client states its deadline itself, so the deadline counts only within the class: the result is
    never earlier than that of the next more urgent class for the same arrival.
    """
    urgency = ticket.urgency
    usual = slo_s[urgency]
    if ticket.deadline >= ticket.arrival + usual:
        return ticket.arrival + usual
    least = min(slo_s[urgency - 1], usual) if urgency else 0.0
    return max(ticket.deadline, ticket.arrival + least)


def check_per_class(name: str, values: PerClass) -> None:
    """Raise PolicyConfigError if a value is not above 0 and finite."""
    if not all(0.0 < value < float("inf") for value in values):
        raise PolicyConfigError(f"{name} must be five numbers above 0, critical first", name)


def check_width(share: float) -> None:
    """Raise PolicyConfigError unless `share` is between 0 and 1."""
    if not 0.0 <= share <= 1.0:
        raise PolicyConfigError("width must be a share, 0 to 1", "width")
