"""How soon a first token is expected of each class, where a request does not say it itself.

Pure data, its check, and what it makes of a request's own deadline.
"""

from __future__ import annotations

from policies.queueing.contract import PolicyConfigError
from policies.queueing.ticket import Ticket

PerClass = tuple[float, float, float, float, float]  # critical, high, normal, low, batch
SLO_S: PerClass = (0.25, 0.5, 2.0, 10.0, 600.0)


def due(ticket: Ticket, slo_s: tuple[float, ...]) -> float:
    """When a first token is due: by the request's own deadline or its class, whichever is earlier.

    A deadline is a client's word, so it orders within a class: it comes before no request of a more
    urgent class that arrived at the same time.
    """
    urgency = ticket.urgency
    usual = slo_s[urgency]
    if ticket.deadline >= ticket.arrival + usual:
        return ticket.arrival + usual
    least = min(slo_s[urgency - 1], usual) if urgency else 0.0
    return max(ticket.deadline, ticket.arrival + least)


def check_per_class(name: str, values: PerClass) -> None:
    """Raises PolicyConfigError for values that are not above 0 and finite."""
    if not all(0.0 < value < float("inf") for value in values):
        raise PolicyConfigError(f"{name} are five numbers above 0, critical first", name)


def check_width(share: float) -> None:
    """Raises PolicyConfigError for what is no share."""
    if not 0.0 <= share <= 1.0:
        raise PolicyConfigError("width is a share, 0 to 1", "width")
