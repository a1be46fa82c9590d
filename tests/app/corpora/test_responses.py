"""Every response of the corpora, in every form, sent by a hostile replica.

The reference is h11's reading of the same bytes. A response that h11 reads completely must arrive
completely. A response that h11 finds truncated must be visibly truncated. A response that h11
refuses must become a 502 (or, after the head was relayed, a visible truncation). A second request
must always get its own answer.
"""

import pytest

from tests.app.corpora.corpus import FOLLOW_UP, FOLLOW_UP_TARGET, FORMS, Case, llhttp, pieces
from tests.app.corpora.forwarding import problems_of_relay
from tests.app.corpora.lanes import judge_all, report
from tests.harness.behaviours import until_closed
from tests.harness.messages import json_response, request
from tests.harness.reading import Response, read_response
from tests.harness.replica import HostileReplica, ReplicaConnection
from tests.harness.running import Router, long_scenario

MARK = {"mark": "follow-up"}


class CaseReplica(HostileReplica):
    """Answers `/case` with the bytes of the current case, other paths with the mark."""

    def __init__(self) -> None:
        super().__init__(self._run)
        self.steps: list[bytes] = []
        self.ends = True  # whether the replica closes after the bytes

    async def _run(self, connection: ReplicaConnection) -> None:
        while asked := await connection.recv_request():
            if asked.target == FOLLOW_UP_TARGET:
                await connection.send(json_response(MARK))
                continue
            await connection.send_pieces(self.steps)
            if self.ends:
                connection.fin()
                await until_closed(connection)
                return


def ends_by_itself(case: Case) -> bool:
    """True if h11 reads the whole response without the end of the connection."""
    whole = read_response(case.data)
    kept = read_response(case.data + b"surplus")
    return whole is not None and whole.complete and kept is not None and kept.body == whole.body


# RFC 9112 2.3 and 6.1: messages that the parser project completes or waits for, but that no
# HTTP/1.1 recipient can relay: other protocols' names, a major version other than 1, a coding that
# it cannot decode.
_NOT_RELAYABLE = (b"RTSP/", b"ICE/", b"HTTP/0", b"chunked, deflate", b"chunkedchunked", b"identity")


def reference(case: Case) -> tuple[str, Response | None]:
    """The expected end at the client (`whole`, `cut`, `refused`, `either`) and its content."""
    read = read_response(case.data)
    if case.verdict == "upgrade" or any(odd in case.data for odd in _NOT_RELAYABLE):
        return "refused", None
    if case.verdict == "reject" and not case.completed:
        return "refused", None
    if read is None:
        # A leading empty line: RFC 9112 2.2 lets a server skip it, but does not mention clients.
        return "either", None
    if not read.complete:
        return "cut", read
    return "whole", read


@pytest.mark.parametrize("form", FORMS)
@long_scenario
async def test_response_is_relayed_cut_or_refused(form: str) -> None:
    async def judge(router: Router, case: Case) -> list[str]:
        return await _judge(router, case, form)

    found = await judge_all(llhttp("response"), judge, CaseReplica)
    assert not found, report(found)


async def _judge(router: Router, case: Case, form: str) -> list[str]:
    replica = router.replica
    assert isinstance(replica, CaseReplica)
    fate, content = reference(case)
    sent_form = "whole" if form == "followed" else form
    replica.steps = list(pieces(case.steps, sent_form))
    replica.ends = not (form == "followed" and ends_by_itself(case))
    asked = len(replica.requests)
    client = await router.client()
    await client.send(request("/case"))
    answer = await client.recv_response()
    found = _judge_answer(fate, content, answer)
    if len(replica.requests) - asked != 1:
        found.append("a response that is no answer was asked for again")
    # The second request uses the client's connection if it stays open, else a new one. It must get
    # its own answer.
    if not answer.complete or answer.header("connection") == "close":
        assert await client.expect_close()
        client = await router.client()
    await client.send(FOLLOW_UP)
    second = await client.recv_response()
    if second.status != 200 or second.json() != MARK:
        found.append(f"the next request got another answer: {second}")
    if client.unread:
        found.append(f"bytes after the last response: {client.unread!r}")
    return [f"{problem}; got {answer}" for problem in found]


def _judge_answer(fate: str, content: Response | None, answer: Response) -> list[str]:
    refused = answer.status == 502 and answer.complete
    # `replica_reset` is the reason for a truncated head.
    reasons = ("bad_response", "replica_reset")
    if refused and answer.error()["code"] not in reasons:
        return [f"refused as {answer.error()['code']}"]
    if fate == "refused":
        return [] if refused or not answer.complete else ["relayed, and must be refused"]
    if fate == "cut":
        return [] if refused or not answer.complete else ["a cut response was made whole"]
    if fate == "either":
        return [] if refused or answer.complete else ["neither refused nor relayed"]
    assert content is not None
    return problems_of_relay(content, answer)
