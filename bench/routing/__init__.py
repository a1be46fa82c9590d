"""Measures the cost of a routing decision: `python -m bench.routing`."""
