"""The built-in hedging policies, one a file; importing this package registers them all."""

from policies.hedging import adaptive, fixed, immediate, off, quantile

__all__ = ["adaptive", "fixed", "immediate", "off", "quantile"]
