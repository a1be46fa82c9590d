"""Formats times for the access log. Must never: be called if no log is written."""


def milliseconds(seconds: float) -> float:
    """Seconds as milliseconds with three decimals; `round` would cost three times as much."""
    return int(seconds * 1e6 + 0.5) / 1e3
