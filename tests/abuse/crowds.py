"""Hostile crowds as hypothesis draws them: clients that come at once, and answers they meet."""

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
    """Clients that come at once, and what the hostile replicas do with their next connections."""

    clients: tuple[Client, ...]
    answers: tuple[Answer, ...]


@st.composite
def crowds(draw: st.DrawFn) -> Crowd:
    """Not `st.builds`: a failure shows a crowd by its `repr`, and not megabytes of arguments."""
    clients = draw(st.lists(CLIENT, min_size=1, max_size=CLIENTS))
    return Crowd(tuple(clients), tuple(draw(st.lists(ANSWER, max_size=ANSWERS))))


CROWDS = crowds()
