"""Times as the access log writes them. Must never: be called where nobody logs."""


def milliseconds(seconds: float) -> float:
    """Seconds as milliseconds with three decimals; `round` would cost three times as much."""
    return int(seconds * 1e6 + 0.5) / 1e3
