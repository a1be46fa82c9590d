"""The compared setups: a number of routers, and what each router knows of the engines' caches.

The traffic is that of `bench.priority.traffic`: closed-loop clients of the classes batch and low
keep the fleet full, and requests of the classes high and normal arrive in a Poisson process. So
every engine has waiting requests all the time, which is the hardest case for routers that see each
other only in the engines' metrics.

Must never depend on a result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from bench.priority.traffic import KINDS

SIMULATED: Final = (1, 2, 4, 8, 32)  # numbers of routers
HTTP: Final = (1, 2, 4)
SOME: Final = (1, 8)  # numbers of routers for sidecars, and for a policy without knowledge
TENANTS: Final = sum(kind.tenants for kind in KINDS)


@dataclass(frozen=True, slots=True)
class Setup:
    """One row of the table."""

    routers: int
    is_exact: bool = False  # `prefix.exact`: the engines publish what their caches hold
    # Each tenant has pods of its own, with a router in each, as an application with sidecars; other
    # requests come to any router. Several tenants share a router if there are more tenants.
    is_sidecar: bool = False
    policy: str = "kv_aware"

    @property
    def pods(self) -> int:
        """The routers that get requests of one tenant; 0: all."""
        return max(1, self.routers // TENANTS) if self.is_sidecar else 0

    @property
    def knowledge(self) -> str:
        return f"{self.policy}, exact" if self.is_exact else self.policy

    @property
    def dealt(self) -> str:
        """Which router gets a request, as text."""
        return "own pods" if self.is_sidecar else "any"

    def settings(self) -> dict[str, Any]:
        """The sections of the configuration that are not the defaults."""
        return {"routing": {"policy": self.policy}, "prefix": {"exact": self.is_exact}}


def setups(counts: tuple[int, ...], others: tuple[int, ...] = ()) -> list[Setup]:
    """Return the setups with these numbers of routers. Each kind of setup begins with one router.

    `others`: the numbers of routers for sidecars, and for the policy chwbl.
    """
    found = [Setup(routers, is_exact) for is_exact in (False, True) for routers in counts]
    found += [Setup(routers, is_sidecar=True) for routers in others]
    found += [Setup(routers, policy="chwbl") for routers in others]
    return found
