"""Each event at each phase of an answer: what the client and the log show, and nothing is left.

`OUTCOMES` has one row per event and one column per phase. A row holds for every way through the
router: with and without the queue, with a hedge that is not due, and with continuation. With a
healthy spare replica, the cells of `MENDED` become a whole answer after a second attempt.
"""

import asyncio
from typing import Any, NamedTuple

import pytest

from router.config.model import Continuation, Hedging, Queue
from tests.harness.behaviours import chat_either, until_told
from tests.harness.cases import code_of, compare, report
from tests.harness.client import RawClient
from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chat, chunk, completion, role, token
from tests.harness.replica import ReplicaConnection, eventually, rest
from tests.harness.running import Router, running, virtual_scenario

WHOLE = completion()
HEAD = WHOLE.index(b"\r\n\r\n") + 4
STREAM = [SSE_HEAD, chunk(role()), chunk(token("a")), chunk(DONE), LAST_CHUNK]
# What the replica has sent at each phase, and what it sends if it goes on.
STREAMED = {
    phase: (b"".join(STREAM[:count]), b"".join(STREAM[count:]))
    for count, phase in enumerate(("request", "head", "role", "content", "done"))
}
AS_A_WHOLE = {
    phase: (WHOLE[:size], WHOLE[size:])
    for phase, size in {"request": 0, "head": HEAD, "content": HEAD + 20}.items()
}
WAYS: dict[str, dict[str, Any]] = {
    "queue": {},
    "no queue": {"queue": Queue(enabled=False)},
    "hedging": {"hedging": Hedging(policy="fixed", options={"delay_s": 1000.0}, budget=1.0)},
    "continuation": {"continuation": Continuation(enabled=True), "replica": {"engine": "vllm"}},
}


class Outcome(NamedTuple):
    reason: str
    logged: int  # the status in the log
    status: int  # the status that the client gets; 0: it has left
    complete: bool = True


OK = Outcome("ok", 200, 200)
GONE = Outcome("client_gone", 499, 0)
LEFT_LATE = Outcome("ok", 200, 0)  # clients leave at [DONE], before the end of the message
LOST, CUT = Outcome("replica_reset", 502, 502), Outcome("replica_reset", 200, 200, False)
REFUSED, STOPPED = Outcome("draining", 503, 503), Outcome("draining", 200, 200, False)
NO_TOKEN = Outcome("ttft_timeout", 200, 200)  # an error event behind the early 200
NO_ANSWER = Outcome("whole_timeout", 504, 504)
STALLED = Outcome("token_gap_timeout", 200, 200, False)

# event: the outcomes of a stream at request, head, role, content and done, and those of a whole
# answer at request, head and content.
OUTCOMES: dict[str, tuple[list[Outcome], list[Outcome]]] = {
    "client fin": ([GONE] * 4 + [LEFT_LATE], [GONE] * 3),
    "client rst": ([GONE] * 4 + [LEFT_LATE], [GONE] * 3),
    "replica fin": ([LOST] * 3 + [CUT] * 2, [LOST] * 3),
    "replica rst": ([LOST] * 3 + [CUT] * 2, [LOST] * 3),
    "drain": ([OK] * 5, [OK] * 3),
    "stop": ([REFUSED] * 3 + [STOPPED] * 2, [REFUSED] * 3),
    "reload": ([OK] * 5, [OK] * 3),
    "silence": ([NO_TOKEN] * 3 + [STALLED] * 2, [NO_ANSWER] * 3),
}
MENDED = (LOST,)  # with continuation, also a stream that is cut at its content
SPARED = ("replica fin", "replica rst", "silence")  # the events that other replicas may mend
EVERY = [
    (event, way, is_stream, is_spare)
    for event in OUTCOMES
    for way in WAYS
    for is_stream in (True, False)
    for is_spare in (False, True)
    if (event in SPARED or not is_spare)
    # The other ways matter only where an attempt is ended from outside.
    and (way == "queue" or event in ("client rst", "replica rst", "stop"))
] + [("silence", "continuation", True, True)]


def expected(event: str, way: str, phase: str, outcome: Outcome, is_spare: bool) -> Outcome:
    is_continued = way == "continuation" and phase == "content" and outcome in (CUT, STALLED)
    return OK if is_spare and (outcome in MENDED or is_continued) else outcome


class Story:
    """A replica that stops at a phase, and the client that waits for it."""

    def __init__(self, sent: bytes, more: bytes, is_stream: bool) -> None:
        self.sent, self.more, self.is_stream = sent, more, is_stream
        self.asked = chat(stream=is_stream)
        self.end = ""  # how the replica ends its connection instead of going on
        self.go = asyncio.Event()
        self.reached = asyncio.Event()
        self.ended: list[ReplicaConnection] = []  # connections whose answer is over

    async def __call__(self, connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            if self.sent:
                await connection.send(self.sent)
            self.reached.set()
            await until_told(connection, self.go)
            self.ended.append(connection)
            if self.end == "rst":
                connection.rst()
            elif self.end == "fin":
                connection.close()
            if self.end or connection.ended is not None:
                return
            await connection.send(self.more)

    async def happens(self, event: str, router: Router, client: RawClient) -> None:
        who, _, how = event.partition(" ")
        if who == "client":
            client.close() if how == "fin" else client.rst()
        elif who == "replica":
            self.end = how
            self.go.set()
        elif who in ("drain", "stop"):
            router.app.drain()
            await eventually(lambda: router.app.parts.front.draining, "the drain")
            if who == "stop":
                await router.app.draining.done.wait()
                await router.app.stop()
            self.go.set()
        elif who == "reload":
            router.change(retry=router.config.retry)
            await router.app.reload()
            self.go.set()


async def differences(story: Story, event: str, is_spare: bool, way: str, want: Outcome) -> Any:
    spare = [chat_either] if is_spare else []
    quiet = "probes would eject a silent replica"
    async with running(
        story, *spare, policy="round_robin", quiet_control_plane=quiet, **WAYS[way]
    ) as router:
        client = await router.send(story.asked)
        if is_spare:
            await eventually(lambda: story.reached.is_set() or bool(router.lines()), "an attempt")
            if not story.reached.is_set():  # the spare replica answered: it is this one's turn
                await client.recv_response()
                await client.send(story.asked)
        await story.reached.wait()
        await rest(0.05)  # the router reads what the replica has sent
        earlier = len(router.lines())
        await story.happens(event, router, client)
        wrong: list[str] = []
        if want.status:
            answer = await client.recv_response()
            compare(wrong, "status", answer.status, want.status)
            compare(wrong, "complete", answer.complete, want.complete)
            if want.reason != "ok":
                compare(wrong, "code", code_of(answer), want.reason)
                compare(wrong, "[DONE]", answer.body.count(b"[DONE]"), story.sent.count(b"[DONE]"))
            elif story.is_stream:
                compare(wrong, "[DONE]", answer.body.count(b"[DONE]"), 1)
            if event in ("drain", "stop") and want.status == 503:
                compare(wrong, "connection", answer.header("connection"), "close")
                compare(wrong, "has retry-after", bool(answer.header("retry-after")), True)
        await eventually(lambda: len(router.lines()) > earlier, "the log line")
        await eventually(lambda: bool(story.ended), "the end of the replica's answer")
        (line,) = router.lines()[earlier:]
        compare(wrong, "reason", line["reason"], want.reason)
        compare(wrong, "logged", line["status"], want.logged)
        is_mended = is_spare and want is OK and event not in ("drain", "reload")
        compare(wrong, "attempts", line["attempts"], 2 if is_mended else 1)
        return wrong


@pytest.mark.parametrize(("event", "way", "is_stream", "is_spare"), EVERY)
@virtual_scenario
async def test_each_phase(event: str, way: str, is_stream: bool, is_spare: bool) -> None:
    phases = STREAMED if is_stream else AS_A_WHOLE
    rows = zip(phases.items(), OUTCOMES[event][not is_stream], strict=True)
    found = {}
    for (phase, (sent, more)), outcome in rows:
        story = Story(sent, more, is_stream)
        want = expected(event, way, phase, outcome, is_spare)
        if wrong := await differences(story, event, is_spare, way, want):
            found[phase] = wrong
    assert not found, report(found, f"{event}, {way}, {is_stream=}, {is_spare=}")
