"""A policy's hook is called once at the end of each attempt, for every kind of end."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from policies.contract import C, Candidate, Context, Pick, RequestView, RoutingPolicy
from router.dispatch.chooser import Policies
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat, json_response
from tests.harness.replica import Behaviour, ReplicaConnection
from tests.harness.running import running, scenario


@dataclass(slots=True)
class Listener(RoutingPolicy):
    """Picks the first candidate; records which hook was called for which replica."""

    heard: list[tuple[str, str]] = field(default_factory=list)

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        return Pick(candidates[0], "first")

    def on_dispatch(self, view: RequestView, candidate: Candidate, ctx: Context) -> None:
        self.heard.append(("dispatch", candidate.id))

    def on_finish(
        self, view: RequestView, candidate: Candidate, output_tokens: int | None, ctx: Context
    ) -> None:
        self.heard.append(("finish", candidate.id))


async def refuses(connection: ReplicaConnection) -> None:
    while await connection.recv_request():
        await connection.send(json_response({"error": {"message": "no"}}, 400))


async def is_busy(connection: ReplicaConnection) -> None:
    while await connection.recv_request():
        await connection.send(json_response({"error": {"message": "later"}}, 503))


@pytest.mark.parametrize(
    ("first", "heard"),
    [
        (json_ok, [("dispatch", "r0"), ("finish", "r0")]),
        (refuses, [("dispatch", "r0"), ("finish", "r0")]),
        (
            is_busy,
            [("dispatch", "r0"), ("finish", "r0"), ("dispatch", "r1"), ("finish", "r1")],
        ),
    ],
    ids=["answered", "refused", "busy, then elsewhere"],
)
@scenario
async def test_each_attempt_ends_once(first: Behaviour, heard: list[tuple[str, str]]) -> None:
    async with running(first, json_ok, policy="round_robin") as router:
        listener = Listener()
        router.app.parts.context.chooser.policies = Policies(listener, {}, 64)
        await router.ask(chat())
        await router.log()
        assert listener.heard == heard
