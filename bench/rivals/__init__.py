"""Routing policies that were never better than all others, for comparison.

Importing this package registers them. They are not installed. `bench/RESULTS.md` has their figures.
"""

from bench.rivals import linear_cost, preble

__all__ = ["kv_occupancy", "least_inflight", "linear_cost", "preble"]
