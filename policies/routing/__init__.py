"""The built-in routing policies, one a file; importing this package registers them all."""

from policies.routing import least_inflight, p2c, random, round_robin

__all__ = ["least_inflight", "p2c", "random", "round_robin"]
