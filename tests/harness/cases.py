"""Tables of faults: each row states a fault and everything that clients and the log must show.

A `Case` is one story at one router: what the replicas do, what the client sends, what happens at
which moment, and the outcome. A `Refusal` is a request that the router must refuse by itself; a
whole table of them runs at one router. A failure names the row and lists every difference as
`field: got ..., expected ...`.

`running` adds its checks to every case: no lease, timer, byte, task or open file is left.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.harness.behaviours import echo
from tests.harness.client import RawClient
from tests.harness.messages import chat, request
from tests.harness.reading import Response, error_of
from tests.harness.replica import Behaviour, ReplicaConnection, eventually
from tests.harness.running import Router, running

Moment = Callable[[Router, RawClient], Awaitable[None] | None]
SMUGGLED = request("/smuggled")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One story. A field that is `None` is not checked; a tuple lists the allowed values."""

    replicas: tuple[Behaviour | str, ...]  # a text is the URL of something that is no replica
    first: tuple[Behaviour, ...] = ()  # of the first connections, whichever replicas get them
    settings: Mapping[str, Any] = field(default_factory=dict)  # arguments of `running`
    asked: bytes = field(default_factory=chat)
    times: int = 1  # how often it is asked over the same connection; each answer must be as below
    # When the client has received `after`, or a replica has the request if `after` is empty,
    # `then` happens.
    after: bytes = b""
    then: Moment | None = None

    status: int | tuple[int, ...] = 200  # 0: the client gets no answer
    code: str | tuple[str, ...] | None = None  # the error code of the body
    complete: bool | None = True
    body: bytes | None = None
    events: int | None = None
    without: tuple[bytes, ...] = ()  # bytes that must not reach the client
    informational: tuple[int, ...] | None = None
    reason: str | tuple[str, ...] | None = "ok"
    attempts: int | tuple[int, ...] | None = 1
    executed: int | None = None  # requests that all replicas received
    sessions: int | None = None  # connections to the replicas that carried requests
    closes: bool = False  # the connections to the replicas must be closed by the router

    async def check(self, name: str) -> None:
        waiting = list(self.first)

        def in_turn(behave: Behaviour) -> Behaviour:
            async def acts(connection: ReplicaConnection) -> None:
                await (waiting.pop(0) if waiting else behave)(connection)

            return acts

        replicas = [one if isinstance(one, str) else in_turn(one) for one in self.replicas]
        async with running(*replicas, **self.settings) as router:
            client = await router.client()
            wrong: list[str] = []
            for _ in range(self.times):
                wrong += await self._answer_of(router, client)
            if self.closes:
                sessions = [one for replica in router.replicas for one in replica.sessions]
                await eventually(
                    lambda: all(one.ended is not None for one in sessions),
                    f"{name}: the router closes the connections to the replicas",
                )
            lines = await router.log(self.times)
            for line in lines:
                compare(wrong, "reason", line["reason"], self.reason)
                compare(wrong, "attempts", line["attempts"], self.attempts)
            requests = sum(len(replica.requests) for replica in router.replicas)
            compare(wrong, "executed", requests, self.executed)
            opened = sum(len(replica.sessions) for replica in router.replicas)
            compare(wrong, "sessions", opened, self.sessions)
            for data in self.without:
                if data in client.received:
                    wrong.append(f"without: the client got {data!r}")
            assert not wrong, report({name: wrong}, repr(client))

    async def _answer_of(self, router: Router, client: RawClient) -> list[str]:
        await client.send(self.asked)
        if self.then is not None:
            if self.after:
                while self.after not in client.received:
                    assert await client.fill(), f"the answer ended before {self.after!r}"
            else:
                await router.replica.wait_for_requests(1)
            happened = self.then(router, client)
            if happened is not None:
                await happened
        wrong: list[str] = []
        if self.status == 0:
            return wrong
        answer = await client.recv_response()
        compare(wrong, "status", answer.status, self.status)
        compare(wrong, "complete", answer.complete, self.complete)
        compare(wrong, "informational", tuple(answer.informational), self.informational, exact=True)
        compare(wrong, "body", bytes(answer.body), self.body)
        if self.events is not None:
            compare(wrong, "events", len(answer.events()), self.events)
        if self.code is not None:
            compare(wrong, "code", code_of(answer), self.code)
        return wrong


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """What a client sends and the router must refuse: no byte of it may reach a replica."""

    sent: bytes | tuple[bytes, ...]  # a tuple is sent piece by piece
    status: int | tuple[int, ...] = 400
    code: str | tuple[str, ...] | None = None
    message: str = ""  # a part of the error message
    param: str | None = None
    closes: bool = True  # the client's connection ends with the refusal

    async def differences(self, router: Router) -> list[str]:
        wrong: list[str] = []
        client = await router.client()
        logged = len(router.lines())
        smuggled = (SMUGGLED,) if self.closes else ()
        if isinstance(self.sent, tuple):
            await client.send_pieces((*self.sent, *smuggled))
        else:
            await client.send(self.sent, *smuggled)
        answer = await client.recv_response()
        compare(wrong, "status", answer.status, self.status)
        compare(wrong, "complete", answer.complete, True)
        compare(wrong, "code", code_of(answer), self.code)
        if self.message not in str(answer.json()["error"].get("message")):
            wrong.append(f"message: got {answer.json()['error']}, expected {self.message!r}")
        compare(wrong, "param", answer.json()["error"].get("param"), self.param)
        if self.closes:
            compare(wrong, "connection", answer.header("connection"), "close")
            await client.expect_close()
            compare(wrong, "bytes after the refusal", client.unread, b"")
        client.close()
        await eventually(lambda: len(router.lines()) > logged, "the log line of a refusal")
        line = router.lines()[-1]
        compare(wrong, "lines", len(router.lines()) - logged, 1)
        compare(wrong, "attempts", line["attempts"], 0)
        compare(wrong, "reason", line["reason"], code_of(answer))
        return wrong


async def check_refusals(rows: Mapping[str, Refusal], **settings: Any) -> None:
    """Send all rows to one router, each over its own connection."""
    async with running(echo, **settings) as router:
        found: dict[str, Iterable[str]] = {}
        for name, row in rows.items():
            wrong = await row.differences(router)
            compare(wrong, "connections to the replica", len(router.replica.sessions), 0)
            if wrong:
                found[name] = wrong
                break  # later rows would count what this row has caused
        assert not found, report(found, f"{len(rows)} rows")


def code_of(answer: Response) -> str | None:
    """The error code of an answer, or of the last event of its stream."""
    text = bytes(answer.body).decode("utf-8", "replace")
    if not text.startswith("{"):
        text = answer.events()[-1] if "data:" in text else ""
    try:
        value = json.loads(text)
        # Anthropic's API has a type beside the error.
        error = value["error"] if value.get("type") == "error" else error_of(value)
        code = error.get("code")
    except (ValueError, KeyError, AttributeError, TypeError, AssertionError):
        return None
    return None if code is None else str(code)


def compare(wrong: list[str], what: str, got: Any, expected: Any, *, exact: bool = False) -> None:
    """Add a line to `wrong` if a value is not the expected one, or one of the expected ones."""
    if expected is None:
        return
    fits = got in expected if isinstance(expected, tuple) and not exact else got == expected
    if not fits:
        wrong.append(f"{what}: got {got!r}, expected {expected!r}")


def report(found: Mapping[str, Iterable[str]], context: str) -> str:
    rows = [f"{name}: {one}" for name, wrong in found.items() for one in wrong]
    return "\n".join(["these rows differ:", *rows, context])
