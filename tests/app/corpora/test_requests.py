"""Every request of the corpora, in every form, sent through the router to a recording replica.

Three checks: the verdict at the client; the requests that the replica received, parsed by h11; and
that each answer belongs to its request (the replica echoes what it read).
"""

import h11
import pytest

from tests.app.corpora.corpus import FOLLOW_UP_TARGET, FORMS, Case, http11probe, llhttp, pieces
from tests.app.corpora.forwarding import problems_of_forwarding, problems_of_request
from tests.app.corpora.house_rules import verdict_of
from tests.app.corpora.lanes import judge_all, report
from tests.harness.behaviours import echo
from tests.harness.client import RawClient
from tests.harness.reading import Request, Response, read_requests, read_responses
from tests.harness.replica import HostileReplica
from tests.harness.running import Router, long_scenario

PATIENT = {"head_s": 60.0, "body_idle_s": 60.0}
HASTY = {"head_s": 0.3, "body_idle_s": 0.3}
WAITING = {"incomplete", "reject_or_wait"}


def all_cases() -> list[Case]:
    return [*llhttp("request"), *http11probe()]


@pytest.mark.parametrize("form", FORMS)
@long_scenario
async def test_verdict_is_met_and_nothing_is_smuggled(form: str) -> None:
    async def judge(router: Router, case: Case) -> list[str]:
        return await _judge(router, case, form)

    found = await judge_all(
        all_cases(), judge, lambda: HostileReplica(echo), timeouts=PATIENT, allow_half_close=True
    )
    assert not found, report(found)


@long_scenario
async def test_an_incomplete_request_ends_by_its_timeout() -> None:
    async def judge(router: Router, case: Case) -> list[str]:
        client = await router.client()
        await client.send_pieces(case.steps)
        await client.expect_close()
        client.close()
        answers = _answers(client, case.data)
        found = _reached(router, case, whole=case.completed or 0)
        if answers and answers[-1].status != 408 and case.verdict == "incomplete":
            found.append(f"answered {[a.status for a in answers]} and not 408")
        return found

    cases = [case for case in all_cases() if verdict_of(case) in WAITING]
    found = await judge_all(cases, judge, lambda: HostileReplica(echo), timeouts=HASTY)
    assert not found, report(found)


async def _judge(router: Router, case: Case, form: str) -> list[str]:
    """Send one case and return the problems."""
    replica = router.replica
    before = len(replica.requests)
    verdict = verdict_of(case)
    client = await router.client()
    await client.send_pieces(pieces(case.steps, form))
    sent_bytes = b"".join(pieces(case.steps, form))
    if verdict == "reject":
        await client.expect_close()  # the test sends no FIN: the router must close
    else:
        await _answered(client, sent_bytes)
        client.fin()
        await client.expect_close()
    client.close()
    await router.quiet()
    try:
        answers = _answers(client, sent_bytes)
    except h11.RemoteProtocolError as err:
        return [f"the client got no HTTP: {err}; {client!r}"]
    got = replica.requests[before:]
    statuses = [answer.status for answer in answers]

    found = _universal(answers, got)
    found += [problem for request in got for problem in problems_of_request(request)]
    found += _as_sent(sent_bytes, got)
    found += _verdict(case, verdict, form, sent_bytes, answers, got)
    found += _special(case, answers, got)
    if not case.expects(answers[0].status if answers else None):
        found.append(f"the corpus expects {case.statuses}")
    return [f"{problem}; statuses {statuses}, replica read {_names(got)}" for problem in found]


async def _answered(client: RawClient, sent: bytes) -> None:
    """Wait for as many answers as h11 reads requests, or until one of them is a refusal."""
    count = len(read_requests(sent).done)
    while True:
        try:
            done = [answer for answer in _answers(client, sent) if answer.complete]
        except h11.RemoteProtocolError:
            done = []  # an incomplete or unreadable answer: wait for the connection's end
        if len(done) >= count or (done and done[-1].status >= 400):
            return
        if not await client.fill():
            return


def _answers(client: RawClient, sent: bytes) -> list[Response]:
    methods = [request.method for request in read_requests(sent).done]
    return read_responses(bytes(client.received), [m if m != "CONNECT" else "GET" for m in methods])


def _names(got: list[Request]) -> list[str]:
    return [f"{request.method} {request.target}" for request in got]


def _universal(answers: list[Response], got: list[Request]) -> list[str]:
    """Problems by rules that apply to any input of a client."""
    found = []
    good = [answer for answer in answers if 200 <= answer.status < 300]
    if len(good) != len(got):
        found.append("successes at the client and requests at the replica differ in number")
    for answer, request in zip(good, got, strict=False):
        if not answer.complete:
            found.append("an answer is cut short")
        elif request.method != "HEAD" and (
            answer.json()["method"],
            answer.json()["target"],
            answer.json()["body"].encode("latin-1"),
        ) != (request.method, request.target, bytes(request.body)):
            found.append(f"an answer belongs to another request: {bytes(answer.body)!r}")
    for index, answer in enumerate(answers):
        if answer.informational and answer.version == "1.0":
            found.append("1xx to an HTTP/1.0 client")
        if answer.status == 101:
            found.append("a protocol was switched")
        if answer.status in (500, 502, 503, 504):
            found.append("the blame for the client's bytes was put elsewhere")
        if answer.status >= 400:
            if index != len(answers) - 1:
                found.append("the connection went on after a refusal")
            if answer.body and "code" not in answer.error():
                found.append("a refusal without a reason")
    return found


def _as_sent(sent_bytes: bytes, got: list[Request]) -> list[str]:
    """Where h11 parses the client's request, the replica must have received the same request."""
    sent = read_requests(sent_bytes).done
    found = []
    for ours, theirs in zip(sent, got, strict=False):
        found += problems_of_forwarding(ours, theirs)
    if len(got) > len(sent) and not read_requests(sent_bytes).error:
        found.append("the replica received more requests than were sent")
    return found


def _reached(router: Router, case: Case, whole: int) -> list[str]:
    found = []
    if len(router.replica.requests) > whole and case.completed is not None:
        found.append("an incomplete request reached the replica whole")
    return found


def _verdict(
    case: Case,
    verdict: str,
    form: str,
    sent_bytes: bytes,
    answers: list[Response],
    got: list[Request],
) -> list[str]:
    refused = bool(answers) and answers[-1].status >= 400
    good = [answer for answer in answers if 200 <= answer.status < 300]
    completed = case.completed or 0
    found = []
    if verdict == "accept":
        expected = case.completed if case.completed is not None else len(case.steps)
        readable = read_requests(sent_bytes).done
        last = (readable[-1].method, readable[-1].target) if readable else None
        if form == "followed" and last == ("GET", FOLLOW_UP_TARGET):
            expected += 1
            if not got or got[-1].target != FOLLOW_UP_TARGET:
                found.append("the request that followed was not served")
        if len(good) < expected:
            found.append(f"{expected} requests are acceptable, {len(good)} were served")
    elif verdict == "reject":
        allowed = completed if case.verdict == "reject" else 0
        if len(got) > allowed:
            found.append("a rejected request reached the replica")
        if not refused and len(good) > allowed:
            found.append("not refused")
    elif verdict == "reject_preferred":
        if not refused and not good and answers:
            found.append("neither refused nor served")
    elif verdict == "reject_or_close":
        if not refused and any(request.target == FOLLOW_UP_TARGET for request in got):
            found.append("the connection went on")
    elif verdict in ("incomplete", "reject_or_wait"):
        if form != "followed" and len(got) > completed:
            found.append("an incomplete request reached the replica whole")
        if form != "followed" and len(good) > completed:
            found.append("an incomplete request was answered with success")
    elif verdict == "reject_or_drop":
        if not refused and any(
            "_" in name or "\t" in name for request in got for name, _ in request.headers
        ):
            found.append("the odd field was passed on")
    elif verdict == "see_expected":
        if not case.statuses:
            found.append("the corpus says nothing that could be expected")
    elif verdict == "must_not_desync":
        pass  # only the universal rules apply to this case
    else:
        found.append(f"no rule for verdict {verdict}")
    return found


def _special(case: Case, answers: list[Response], got: list[Request]) -> list[str]:
    """Expectations that the corpora state in words."""
    name = case.id.partition("/")[2]
    first = answers[0] if answers else None
    found = []
    if name == "COMP-DATE-HEADER" and (first is None or not first.all("date")):
        found.append("RFC 9110 6.6.1: a forwarded response without Date gets one")
    if name == "COMP-EXPECT-UNKNOWN" and (first is None or first.status != 417):
        found.append("an unknown expectation is answered 417")
    if name.startswith(("COMP-METHOD-TRACE", "COMP-TRACE")) and (
        first is None or first.status != 405 or got
    ):
        found.append("TRACE is answered 405 and goes nowhere")
    if name == "COMP-UNKNOWN-METHOD" and (first is None or first.status != 501):
        found.append("an unknown method is answered 501")
    if name == "COMP-ACCEPT-NONSENSE" and (first is None or first.status != 200):
        found.append("Accept is the replica's to judge")
    if name == "CAP-IMS-FUTURE" and [answer.status for answer in answers[:2]] != [200, 200]:
        found.append("conditions are the replica's to judge")
    if name == "COMP-CONNECTION-CLOSE" and (first is None or first.header("connection") != "close"):
        found.append("the last response says close")
    return found
