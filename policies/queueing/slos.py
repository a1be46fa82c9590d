"""How soon a first token is expected of each class, where a request does not say it itself.

Pure data and its check.
"""

from __future__ import annotations

from policies.queueing.contract import PolicyConfigError

PerClass = tuple[float, float, float, float, float]  # critical, high, normal, low, batch
SLO_S: PerClass = (0.25, 0.5, 2.0, 10.0, 600.0)


def check_per_class(name: str, values: PerClass) -> None:
    """Raises PolicyConfigError for values that are not above 0 and finite."""
    if not all(0.0 < value < float("inf") for value in values):
        raise PolicyConfigError(f"{name} are five numbers above 0, critical first", name)


def check_width(share: float) -> None:
    """Raises PolicyConfigError for what is no share."""
    if not 0.0 <= share <= 1.0:
        raise PolicyConfigError("width is a share, 0 to 1", "width")
