"""Generates the requests of `bench.priority.traffic` as text: a document and a new question.

Pure: the same arguments give the same script and the same sequence of requests of each client. The
sequence does not depend on the times at which the client can send.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Final, NamedTuple

from bench.fleet.prose import text
from bench.fleet.script import Conversation, Script, Turn
from bench.fleet.workloads import arrivals
from bench.priority import traffic as law

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
