"""Formats the rows of one part as one table. Each row is compared with one router. Pure.

`Figures`, `Counted`: counts the requests of one run, and computes its figures.

Times are those of requests that arrived in the measured time. A request without a whole answer
counts as the slowest request of its class. Tokens are those of answers that ended in the measured
time. Fairness is Jain's index over the tenants of class batch, each with the tokens (prompt and
output) that it was served. These tenants always have requests that wait, and the first of them has
as many clients as the others together. So the index is 1 if all tenants are served equally, and
0.75 if each is served in proportion to its clients.

Must never count a request of the warm-up.

`Setup`: the compared setups: a number of routers, and what each router knows of the engines'
caches.

The traffic is that of `bench.priority.traffic`: closed-loop clients of the classes batch and low
keep the fleet full, and requests of the classes high and normal arrive in a Poisson process. So
every engine has waiting requests all the time, which is the hardest case for routers that see each
other only in the engines' metrics.

Must never depend on a result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from math import inf, isfinite
from statistics import fmean
from typing import Any, Final

from bench.findings.found import Found
from bench.findings.intervals import LEVEL, difference, ratio
from bench.fleet.statistics import quantile
from bench.priority.simulated.seen import jain
from bench.priority.traffic import CLASSES, KINDS
from router.config.model import HighClass
from router.core.text.table import Column, build

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
    shares: bool = False  # the routers tell each other of their requests (`router/share`)
    workers: int = 1  # processes of each router; they share one port, and share without a server

    @property
    def pods(self) -> int:
        """The routers that get requests of one tenant; 0: all."""
        return max(1, self.routers // TENANTS) if self.is_sidecar else 0

    @property
    def knowledge(self) -> str:
        words = [self.policy, *["exact"] * self.is_exact, *["shared"] * self.shares]
        return ", ".join(words)

    @property
    def dealt(self) -> str:
        """Which router gets a request, as text."""
        return "own pods" if self.is_sidecar else "any"

    def settings(self) -> dict[str, Any]:
        """The sections of the configuration that are not the defaults."""
        return {
            "routing": {"policy": self.policy},
            "prefix": {"exact": self.is_exact},
        }


def setups(counts: tuple[int, ...], others: tuple[int, ...] = ()) -> list[Setup]:
    """Return the setups with these numbers of routers. Each kind of setup begins with one router,
    but one router has none to share with.

    `others`: the numbers of routers for sidecars, and for the policy chwbl.
    """
    found = []
    for is_exact in (False, True):
        found += [Setup(routers, is_exact) for routers in counts]
        found += [Setup(routers, is_exact, shares=True) for routers in counts if routers > 1]
    found += [Setup(routers, is_sidecar=True) for routers in others]
    found += [Setup(routers, policy="chwbl") for routers in others]
    return found


HIGH_S = HighClass().ttft_slo_s  # the default SLO of class high for the time to first token


@dataclass(slots=True)
class Figures:
    """The figures of one run. Times to first token are in seconds, by class."""

    ttft_mean_s: dict[str, float] = field(default_factory=dict)
    ttft_p99_s: dict[str, float] = field(default_factory=dict)
    in_slo: float = 0.0  # share of the requests of class high with a first token within `HIGH_S`
    hit_rate: float = 0.0  # share of the prompt tokens that engines found in their caches
    jain: float = 0.0
    tokens_s: float = 0.0  # output tokens/s
    errors: int = 0
    problems: list[str] = field(default_factory=list)


class Counted:
    """The requests of one run; the measured time is from `begin` to `end`, in seconds."""

    def __init__(self, begin: float, end: float) -> None:
        self.begin = begin
        self.end = end
        self._ttfts: dict[str, list[float]] = {name: [] for name in CLASSES}
        self._served: dict[str, int] = {}
        self._output = 0
        self._errors = 0

    def add(
        self,
        name: str,
        tenant: str,
        arrived: float,
        ended: float,
        ttft_s: float | None,
        prompt_tokens: int,
        output_tokens: int,
    ) -> None:
        """Count one request of the class `name`. `ttft_s`: `None` without a whole answer."""
        if self.begin <= arrived < self.end:
            self._ttfts[name].append(inf if ttft_s is None else ttft_s)
            self._errors += ttft_s is None
        if ttft_s is not None and self.begin <= ended < self.end:
            self._output += output_tokens
            if name == "batch":
                tokens = prompt_tokens + output_tokens
                self._served[tenant] = self._served.get(tenant, 0) + tokens

    def figures(self, hit_rate: float) -> Figures:
        """Return the figures. Raises ValueError if a class has no request with an answer."""
        found = Figures(hit_rate=hit_rate, errors=self._errors)
        for name, ttfts in self._ttfts.items():
            most = max((one for one in ttfts if isfinite(one)), default=None)
            if most is None:
                raise ValueError(f"no request of class {name} was answered: the run is too short")
            ranked = sorted(min(one, most) for one in ttfts)
            found.ttft_mean_s[name] = fmean(ranked)
            found.ttft_p99_s[name] = quantile(ranked, 0.99) or 0.0
        high = self._ttfts["high"]
        found.in_slo = sum(one <= HIGH_S for one in high) / len(high)
        found.jain = jain([float(tokens) for tokens in self._served.values()])
        found.tokens_s = self._output / (self.end - self.begin)
        return found


_METHOD: Final = (
    "Routers: their number; each gets a part of the same requests. They tell each other nothing, "
    "or their loads and placements (`shared`). "
    "Requests: a request comes to `any` router at random, or to a router in its tenant's `own "
    f"pods`. In SLO: first token within {HIGH_S:g} s. Jain: fairness among the tenants of class "
    "batch; 1 is equal, 0.75 is in proportion to their clients. Hits: prompt tokens found in a "
    "cache, as the engines count. The columns `over one` compare with one router of the same kind "
    f"in the same runs; the interval holds {LEVEL:.0%} of the resampled means."
)


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one setup, one for each run. Runs of all rows have the same seeds."""

    setup: Setup
    runs: Sequence[Figures]

    def mean(self, value: Callable[[Figures], float]) -> float:
        return fmean(value(one) for one in self.runs)


def found(title: str, method: str, rows: Sequence[Row]) -> Found:
    """Return the table of all rows. `rows` has one router of each kind."""
    problems = [
        f"! {row.setup.routers} routers, {row.setup.knowledge}: {problem}"
        for row in rows
        for one in row.runs
        for problem in one.problems
    ]
    return Found(
        title,
        f"{method} {_METHOD}",
        build(rows, columns(rows), group=lambda row: _kind(row.setup)),
        remarks=list(dict.fromkeys(problems)),
        figures={
            "rows": [
                {**asdict(row.setup), "runs": [asdict(one) for one in row.runs]} for row in rows
            ]
        },
    )


def columns(rows: Sequence[Row]) -> list[Column[Row]]:
    alone = {_kind(row.setup): row for row in rows if row.setup.routers == 1}
    shown: list[Column[Row]] = [
        Column("routers", "routers", text=lambda row: str(row.setup.routers)),
        Column("policy", "policy", text=lambda row: row.setup.knowledge),
        Column("dealt", "requests", text=lambda row: row.setup.dealt),
    ]
    for name in CLASSES:
        mean: Callable[[Row], float | None] = partial(_ttft, name=name, of="ttft_mean_s")
        p99: Callable[[Row], float | None] = partial(_ttft, name=name, of="ttft_p99_s")
        shown.append(Column(f"{name}_mean", "TTFT mean", f"s, {name}", mean))
        shown.append(Column(f"{name}_p99", "p99", f"s, {name}", p99))
    return [
        *shown,
        Column("slo", "in SLO", "%, high", lambda row: 100.0 * row.mean(_in_slo)),
        Column("hits", "hits", "%", lambda row: 100.0 * row.mean(_hits)),
        Column("jain", "Jain", "batch", lambda row: row.mean(_jain)),
        Column("tokens", "output", "tokens/s", lambda row: row.mean(_tokens)),
        Column("errors", "errors", "", lambda row: float(sum(one.errors for one in row.runs))),
        Column("over_high", "TTFT of high over one", text=lambda row: _over(row, alone, _high)),
        Column("over_slo", "in SLO over one, points", text=lambda row: _more(row, alone, _in_slo)),
        Column("over_hits", "hits over one, points", text=lambda row: _more(row, alone, _hits)),
        Column("over_tokens", "output over one", text=lambda row: _over(row, alone, _tokens)),
    ]


_Kind = tuple[str, bool, str]


def _kind(setup: Setup) -> _Kind:
    """What a setup has in common with the one router with which it is compared."""
    return setup.policy, setup.is_exact, setup.dealt


def _ttft(row: Row, name: str, of: str) -> float:
    return fmean(getattr(one, of)[name] for one in row.runs)


def _over(row: Row, alone: dict[_Kind, Row], value: Callable[[Figures], float]) -> str:
    """The figure divided by that of one router, with its interval."""
    other = alone[_kind(row.setup)]
    if other is row:
        return ""
    one = ratio([value(run) for run in row.runs], [value(run) for run in other.runs])
    return one.text() if one.is_enough else f"{one.value:.2f}"


def _more(row: Row, alone: dict[_Kind, Row], value: Callable[[Figures], float]) -> str:
    """The share minus that of one router in percentage points, with its interval."""
    other = alone[_kind(row.setup)]
    if other is row:
        return ""
    one = difference(
        [100.0 * value(run) for run in row.runs], [100.0 * value(run) for run in other.runs]
    )
    return one.text(1) if one.is_enough else f"{one.value:.1f}"


def _high(run: Figures) -> float:
    return run.ttft_mean_s["high"]


def _in_slo(run: Figures) -> float:
    return run.in_slo


def _hits(run: Figures) -> float:
    return run.hit_rate


def _jain(run: Figures) -> float:
    return run.jain


def _tokens(run: Figures) -> float:
    return run.tokens_s
