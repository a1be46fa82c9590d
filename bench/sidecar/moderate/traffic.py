"""The workloads and the emulated engines: 4 replicas at a load that leaves them room.

The workloads are those of `bench.fleet.workloads`: `chat` at 30 requests/s and `shared` at
40 requests/s. In `chat`, conversations arrive in a Poisson process, and a later turn is due after
the previous answer and a think time. In `shared`, all requests arrive in a Poisson process, and
each begins with one of 24 prefixes of 3,000 tokens.

The engines have the timing profile `realistic` and 49,312 tokens of KV cache each, and run at most
256 requests at a time. The settings were chosen with one router and with two routers that tell each
other nothing, never with routers that share:

- The speed is 2.5 times the profile's for `chat` and 3.6 times for `shared`. At these speeds one
  router has a mean TTFT of 60 to 90 ms. The load is 59 % (`chat`) and 67 % (`shared`) of the rate
  that saturates the fleet with every possible cache hit (`bench.fleet.capacity`). At 2.5 times the
  profile's speed, that share is 96 % for `shared`.
- The prefixes of `shared` together fill 37 % of the fleet's KV cache, and a replica cannot hold all
  of them. In runs of 10 s at 4 times the profile's speed, two routers that tell each other nothing
  found 77, 72 and 46 % of the prompt tokens in a cache with 16, 24 and 32 prefixes (one router: 83,
  81 and 78 %). With 32 prefixes, they overloaded the fleet.

A run begins with empty caches and the whole rate, so requests wait at first. With `shared`, one
router needed 4 s until its TTFT was steady, and two that tell each other nothing more than 30 s.
The warm-up of 6 s therefore hides the start of one router only: a setup that needs longer than one
router is measured while it still recovers.

Pure: the same arguments give the same script.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

import msgspec

from bench.fleet import engines, workloads
from bench.fleet.script import Script

RATES: Final = {"chat": 30.0, "shared": 40.0}  # requests/s of each workload
SPEEDS: Final = {"chat": 2.5, "shared": 3.6}  # how many times faster than the timing profile
REPLICAS: Final = 4
PREFIXES: Final = 24
_KV_PREFIXES: Final = 48  # `engines.Spec` derives the size of the KV cache from this number


@dataclass(frozen=True, slots=True)
class Size:
    """Lengths of a run in seconds."""

    warm: float = 6.0  # not measured, because conversations must begin and caches must fill first
    measured: float = 30.0

    @classmethod
    def quick(cls) -> Size:
        return cls(warm=2.0, measured=4.0)

    @property
    def until(self) -> float:
        return self.warm + self.measured


def spec(workload: str) -> engines.Spec:
    """Return the engines of a workload."""
    return engines.Spec(REPLICAS, groups=_KV_PREFIXES, speed=SPEEDS[workload])


def script(workload: str, seed: int, size: Size) -> Script:
    """Return the requests of one run."""
    rate, until = RATES[workload], size.until
    # `users` is the number of requests with each prefix: more than arrive before the run ends.
    users = ceil(2.0 * rate * until / PREFIXES)
    most = workloads.Size(PREFIXES, users, chat_warm_s=size.warm, chat_s=size.measured)
    made = workloads.WORKLOADS[workload](rate, seed, most)
    due = tuple(one for one in made.conversations if one.at < until)
    return msgspec.structs.replace(made, conversations=due, measure_from=size.warm, until=until)
