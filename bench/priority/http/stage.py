"""Measures one order after the other, each with new engines, a new router and the same clients.

`Size`, `Said`: generates the requests of `bench.priority.traffic` as text: a document and a new
question.

Pure: the same arguments give the same script and the same sequence of requests of each client. The
sequence does not depend on the times at which the client can send.

`HedgerowQueueing`: the measured router: Hedgerow with one order of its queue.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Final, NamedTuple

from bench.fleet import engines
from bench.fleet.contestants import HedgerowWith
from bench.fleet.run import doubts
from bench.fleet.script import Conversation, Script, Turn, text
from bench.fleet.statistics import Summary, differences, summarise
from bench.fleet.workloads import arrivals
from bench.priority import traffic as law
from bench.priority.rows import NONE, Row, rules, times
from router.lab.overhead import cpu
from router.lab.overhead.processes import Orderly, Placement
from router.lab.overhead.routers import PeerError, Running, Site
from router.lab.replay.workers import Broken

_RAMP_S: Final = 3.0  # the closed-loop clients start within this many seconds


@dataclass(frozen=True, slots=True)
class Size:
    """Lengths of a run in seconds."""

    warm: float = 15.0  # not measured, because batches and caches must fill first
    measured: float = 45.0

    @classmethod
    def quick(cls) -> Size:
        return cls(warm=2.0, measured=4.0)

    @property
    def until(self) -> float:
        return self.warm + self.measured


class Said(NamedTuple):
    document: str
    question: str
    output_tokens: int


def script(seed: int, size: Size) -> Script:
    """Return the script. A conversation with a turn is one request; a conversation without turns
    stands for a closed-loop client, and its `key` selects the client's requests.
    """
    found = []
    for kind in law.OPEN:
        rng = Random(f"{kind.name} of {seed}")
        for at in arrivals(rng, law.rate(kind)):
            if at >= size.until:
                break
            asked = law.draw(kind, rng)
            said = _said(kind, asked, rng)
            turn = Turn(said.question, said.output_tokens)
            user = _user(kind, asked.tenant)
            found.append(Conversation(at, said.document, (turn,), kind.name, user=user))
    for client in range(law.CLIENTS):
        at = _RAMP_S * client / law.CLIENTS
        kind = law.MIX.kind(client)
        user = _user(kind, law.MIX.tenant(client))
        found.append(Conversation(at, "", (), kind.name, key=f"{seed}.{client}", user=user))
    found.sort(key=lambda conversation: conversation.at)
    return Script(tuple(found), size.warm, size.until)


def work(key: str) -> Iterator[Said]:
    """Yield a client's requests, one after the other, without end."""
    rng = Random(f"client {key}")
    client = int(key.rpartition(".")[2])
    kind, tenant = law.MIX.kind(client), law.MIX.tenant(client)
    while True:
        yield _said(kind, law.draw(kind, rng, tenant), rng)


def _said(kind: law.Kind, asked: law.Asked, rng: Random) -> Said:
    title = f"{rng.getrandbits(64):016x}"
    question = text(rng, asked.question, title)
    return Said(_document(kind, asked.tenant, asked.document), question, asked.output)


def _user(kind: law.Kind, tenant: int) -> str:
    return f"{kind.name}-{tenant}"


@cache
def _document(kind: law.Kind, tenant: int, document: int) -> str:
    title = f"{kind.name} {tenant}, document {document}"
    return text(Random(title), kind.document_tokens, title)


class HedgerowQueueing(HedgerowWith):
    """Hedgerow with one order of its queue and otherwise default settings."""

    order = NONE

    def config(self) -> dict[str, object]:
        settings = super().config()
        del settings["routing"]
        queue = rules(self.order)
        return {
            **settings,
            "queue": {"enabled": queue.enabled, "policy": queue.policy},
            # A tenant is the user named by a request without an API key.
            "keys": {"names_users": True},
            "access_log": {"path": ""},
        }


def hedgerow(order: str) -> type[HedgerowQueueing]:
    return type(
        "Hedgerow",
        (HedgerowQueueing,),
        {"name": order, "order": order, "settings": f"as shipped, {order}"},
    )


_LONGEST = 8192  # maximum tokens of a prompt and its answer
SPEC = engines.Spec(
    count=law.ENGINES,
    speed=1.0,
    more=(
        *("--max-num-seqs", str(law.SLOTS)),
        *("--num-blocks", str(law.KV_TOKENS // engines.BLOCK_TOKENS)),
        *("--max-model-len", str(_LONGEST)),
    ),
)
_NO_SLO_S = inf  # no SLO: this bench does not use the goodput


def run(orders: Sequence[str], seed: int, size: Size, placement: Placement) -> list[Row]:
    """Measure all orders. Raises Broken, and `router.app.emulated_fleet.FleetError`."""
    rows = []
    with Orderly("bench.priority.http.load", cpus=placement.others) as load:
        for order in orders:
            print(f"measuring {order}", file=sys.stderr, flush=True)
            try:
                with tempfile.TemporaryDirectory(prefix="hedgerow-priority-") as name:
                    rows.append(_measure(order, seed, size, placement, load, Path(name)))
            except PeerError as error:
                raise Broken(f"{order} could not be measured: {error}") from None
    return rows


def _measure(
    order: str, seed: int, size: Size, placement: Placement, load: Orderly, folder: Path
) -> Row:
    kind = hedgerow(order)
    problems = []
    with (
        engines.Engines(SPEC, placement.others, log=folder / "engines.log") as fleet,
        Running(kind(Site(folder, fleet.ports, placement))) as peer,
    ):
        before, began = _read(peer.pid, fleet.pid), monotonic()
        played = load.ask(
            {
                "seed": seed,
                "warm": size.warm,
                "measured": size.measured,
                "host": "127.0.0.1",
                "port": peer.port,
                "model": engines.MODEL,
                "engines": fleet.urls,
            }
        )
        after, seconds = _read(peer.pid, fleet.pid), monotonic() - began
        if peer.process is not None and (code := peer.process.poll()) is not None:
            problems.append(f"ended with {code} during the run")
    router_cpu, engines_cpu = (
        cpu.spent_s(one, other) / seconds for one, other in zip(before, after, strict=True)
    )
    summary: Summary = summarise(played, _NO_SLO_S)
    problems += doubts(summary, router_cpu, engines_cpu)
    queried = sum(differences(played["counters"], "queried"))
    hits = sum(differences(played["counters"], "hits"))
    return Row(
        order,
        {name: times(_ttfts(played["records"], name)) for name in law.CLASSES},
        summary.tokens_s,
        hits / queried if queried else None,
        sum(summary.errors.values()),
        router_cpu,
        problems,
    )


def _ttfts(records: Sequence[dict[str, Any]], name: str) -> list[float]:
    """Times to first token of the class in seconds; infinite without a whole answer."""
    return [
        inf if record["ttft"] is None or record["error"] else float(record["ttft"])
        for record in records
        if record["measured"] and record["urgency"] == name
    ]


def _read(router: int, fleet: int) -> tuple[cpu.Reading, cpu.Reading]:
    return cpu.read(cpu.tree(router)), cpu.read([fleet])
