"""Hypothesis strategies for crowds: groups of hostile clients, and the answers of replicas."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from tests.abuse.clients import CLIENT
from tests.abuse.hostile import Answer, Client
from tests.abuse.replies import ANSWER

CLIENTS = 12
ANSWERS = 8


@dataclass(frozen=True)
class Crowd:
    """Clients that connect at the same time, and the answers of hostile replicas."""

    clients: tuple[Client, ...]
    answers: tuple[Answer, ...]


@st.composite
def crowds(draw: st.DrawFn) -> Crowd:
    """Draw a crowd without `st.builds`: a failure report then shows the `repr` of the crowd, not
    megabytes of arguments.
    """
    clients = draw(st.lists(CLIENT, min_size=1, max_size=CLIENTS))
    return Crowd(tuple(clients), tuple(draw(st.lists(ANSWER, max_size=ANSWERS))))


CROWDS = crowds()
