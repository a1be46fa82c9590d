"""The poller with real small servers: its requests, their times, its reports to the fleet."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random
from time import monotonic
from typing import Any, cast

import msgspec
import pytest

from router.config.in_force import InForce
from router.config.model import Config, Health, Polling
from router.core.lease import poll_begins
from router.fleet.monitor.poller import GAP_S, GIVE_UP, Poller, gap_s
from router.fleet.replica import Replica
from router.fleet.signals import NO_SIGNALS, Signals
from router.fleet.table.fleet import Fleet
from tests.app.fleet.servers import Answers, Engine, serving
from tests.fleet.engines.pages import page, read
from tests.fleet.helpers import Table
from tests.harness.behaviours import rst_after_request, rst_unread, until_closed
from tests.harness.listeners import dead_url
from tests.harness.messages import head, response
from tests.harness.replica import Behaviour, ReplicaConnection, eventually
from tests.harness.running import no_files_left, scenario

LAZY = {"interval_s": 3600.0}


class Told:
    """The poller's view of the fleet: its replicas, and a record of all reports."""

    def __init__(self, table: Table) -> None:
        self.replicas = table.fleet.replicas
        self.table = table
        self.polls = self
        self.has_ranks = False  # Whether the router chooses the data-parallel rank.
        self.signals: list[tuple[str, Signals, int]] = []
        self.problems: list[tuple[str, str]] = []
        self.times: list[float] = []

    @property
    def members(self) -> list[Replica]:
        return self.table.fleet.members

    def set_ranks(self, replica: Replica, count: int, first: int | None, /) -> None:
        if self.has_ranks:
            self.table.fleet.set_ranks(replica, count, first)

    def observed(self, replica: Replica, signals: Signals, poll: int, now: float, /) -> None:
        self.signals.append((replica.id, signals, poll))
        self.times.append(now)
        self.table.fleet.polls.observed(replica, signals, poll, now)

    def unobserved(self, replica: Replica, problem: str, now: float, /) -> None:
        self.problems.append((replica.id, problem))
        self.times.append(now)
        self.table.fleet.polls.unobserved(replica, problem, now)

    def unpolled(self, replica: Replica, /) -> None:
        self.table.fleet.polls.unpolled(replica)


class Fixture:
    """A poller over some replicas, and its reports."""

    def __init__(self, poller: Poller, told: Told, in_force: InForce) -> None:
        self.poller = poller
        self.told = told
        self.in_force = in_force

    @property
    def replica(self) -> Replica:
        return self.told.replicas["r0"]

    @property
    def last(self) -> Signals:
        return self.told.signals[-1][1]

    async def polls(self, count: int, id: str) -> None:
        """Wait for `count` more answered polls of a replica."""
        answered = self.answered(id)
        await eventually(lambda: self.answered(id) >= answered + count, f"{count} polls of {id}")

    def answered(self, id: str) -> int:
        return sum(replica == id for replica, _, _ in self.told.signals)

    async def gaps(self, count: int, id: str) -> None:
        """Wait for `count` times the shortest interval: between early polls of a replica."""
        for _ in range(count + 1):
            self.poller.poll_early(self.told.replicas[id])
            await self.polls(1, id)

    async def signals(self, count: int = 1) -> list[Signals]:
        """Wait for `count` answered polls."""
        await eventually(lambda: len(self.told.signals) >= count, f"{count} answers")
        return [signals for _, signals, _ in self.told.signals]

    async def problem(self, count: int = 1) -> str:
        """Wait for `count` failed polls and return the problem of the last."""
        await eventually(lambda: len(self.told.problems) >= count, f"{count} problems")
        return self.told.problems[-1][1]

    def adopt(self, **polling: Any) -> None:
        before = self.in_force.config
        rules = msgspec.structs.replace(before.polling, **polling)
        self.in_force.config = msgspec.structs.replace(before, polling=rules)
        self.poller.reloaded(before)


@asynccontextmanager
async def polling(
    *urls: str,
    token: str | None = None,
    replica: dict[str, Any] | None = None,
    refresh_s: float = 3600.0,
    start: bool = True,
    **rules: Any,
) -> AsyncIterator[Fixture]:
    """A poller over replicas at these URLs; at the end nothing of the poller may remain."""
    table = Table()
    told = Told(table)
    errors: list[BaseException] = []
    config = Config(
        polling=Polling(**{"interval_s": 0.02, "timeout_s": 2.0, **rules}),
        health=Health(models_interval_s=refresh_s),
    )
    for index, url in enumerate(urls):
        table.add(f"r{index}", None, url=url, **(replica or {}))
    in_force = InForce(config, token)
    poller = Poller(cast(Fleet, told), in_force, Random(1), errors.append)
    try:
        if start:
            await poller.start()
        yield Fixture(poller, told, in_force)
    finally:
        await poller.stop()
        assert poller.running == 0
        table.close()
    assert not errors


@asynccontextmanager
async def polled(
    answers: Answers | Behaviour, *others: str, **settings: Any
) -> AsyncIterator[tuple[Engine, Fixture]]:
    """A replica with these answers, and a poller over it and over the replicas at other URLs."""
    async with (
        serving(answers) as engine,
        polling(engine.server.url, *others, **settings) as fixture,
    ):
        yield engine, fixture


def answer(name: str, *fields: str) -> bytes:
    return response(200, *fields, body=read(name), content_type="text/plain; version=0.0.4")


def text(body: bytes, *fields: str) -> bytes:
    return response(200, *fields, body=body, content_type="text/plain")


def running(number: int) -> bytes:
    return text(b"vllm:num_requests_running %d\n" % number)


# -- reports ----------------------------------------------------------------------------------


@scenario
async def test_a_shortage_of_files_is_no_problem_of_the_replica() -> None:
    async with polling(dead_url()) as polls:
        assert await polls.problem() == "refused"  # The modules that it needs are loaded.
        with no_files_left():
            await polls.problem(len(polls.told.problems) + 2)
        assert polls.told.problems[-1] == ("r0", "local")


@scenario
async def test_an_engines_signals_reach_the_fleet() -> None:
    async with polled({"/metrics": answer("vllm-0.32.txt")}) as (_engine, fixture):
        found = await fixture.signals(3)
        assert set(found) == {page("vllm-0.32.txt").signals}
        assert fixture.told.problems == []
        replica = fixture.replica
        assert replica.engine == "vllm"
        assert replica.reports.signals == page("vllm-0.32.txt").signals
        assert (replica.waiting, replica.load, replica.kv_usage) == (6, 14, 0.9871)


@scenario
async def test_a_poll_counts_what_was_sent_before_it_began() -> None:
    """Requests sent during the poll are not included."""
    go = asyncio.Event()

    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await go.wait()
        await connection.send(running(1))
        await until_closed(connection)

    async with polled(behave, replica={"engine": "vllm"}, timeout_s=10) as (engine, fixture):
        await engine.server.wait_for_requests(1)
        during = fixture.replica.polls
        go.set()
        await fixture.signals()
        assert fixture.told.signals[0][2] == during


@scenario
async def test_the_token_and_via_are_sent_and_compression_is_not_asked_for() -> None:
    async with polled({"/metrics": running(1)}, token="t-1") as (engine, fixture):
        await fixture.signals()
        assert {fields["authorization"] for fields in engine.fields} == {"Bearer t-1"}
        assert {fields["accept-encoding"] for fields in engine.fields} == {"identity"}
        assert {fields["via"] for fields in engine.fields} == {"1.1 hedgerow"}


@scenario
async def test_one_connection_serves_many_polls() -> None:
    async with polled({"/metrics": running(1)}, replica={"engine": "vllm"}) as (engine, fixture):
        await fixture.signals(5)
        assert len(engine.server.connections) == 1


@scenario
async def test_figures_nobody_believes_are_counted() -> None:
    body = b"vllm:num_requests_running 3\nvllm:num_requests_waiting NaN\n"
    async with polled({"/metrics": text(body)}, replica={"engine": "vllm"}) as (_engine, fixture):
        found = await fixture.signals(2)
        assert set(found) == {Signals(running=3)}
        assert fixture.poller.odd["vllm:num_requests_waiting"] >= 2
        assert set(fixture.poller.odd) == {"vllm:num_requests_waiting"}


# -- failures ---------------------------------------------------------------------------------


async def hang(connection: ReplicaConnection) -> None:
    await connection.recv_request()
    await until_closed(connection)


def flood(of: bytes, declared: int | None) -> Behaviour:
    """Send these bytes repeatedly, chunked or with a length that is never reached."""

    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        framing = (
            "Transfer-Encoding: chunked" if declared is None else f"Content-Length: {declared}"
        )
        await connection.send(head("HTTP/1.1 200 OK", [framing]))
        block = of * (65536 // len(of) + 1)
        piece = b"%x\r\n%b\r\n" % (len(block), block) if declared is None else block
        try:
            while True:
                await connection.send(piece)
        except OSError:
            pass

    return behave


async def drip(connection: ReplicaConnection) -> None:
    await connection.recv_request()
    await connection.send(head("HTTP/1.1 200 OK", ["Content-Length: 100000"]))
    try:
        while True:
            await connection.send(b"#")
            await asyncio.sleep(0.001)
    except OSError:
        pass


GZIP = text(b"\x1f\x8b\x08\x00", "Content-Encoding: gzip")
SHORT = head("HTTP/1.1 200 OK", ["Content-Length: 500"]) + b"vllm:num_requests_running 1\n"


def says(data: bytes) -> Behaviour:
    async def behave(connection: ReplicaConnection) -> None:
        if await connection.recv_request():
            await connection.send(data)
            connection.close()

    return behave


@pytest.mark.parametrize(
    ("behave", "problem"),
    [
        (hang, "timeout"),
        (drip, "timeout"),
        (rst_unread, "refused"),
        (rst_after_request, "refused"),
        (says(b""), "refused"),
        (says(response(500)), "status"),
        (says(response(404)), "status"),
        (says(response(401)), "status"),
        (says(response(302, "Location: /elsewhere")), "status"),
        (says(text(b"")), "nothing"),
        (says(text(b"<html>hello</html>\n")), "nothing"),
        (says(text(b"renamed:num_requests_running 1\n")), "nothing"),
        (says(text(b"vllm:num_requests_running NaN\n")), "garbage"),
        (says(text(b"vllm:num_requests_running -1\nvllm:kv_cache_usage_perc x\n")), "garbage"),
        (says(b"garbage\r\n\r\n"), "garbage"),
        (says(SHORT), "garbage"),
        (says(GZIP), "garbage"),
        (flood(b"#\n", None), "too_large"),
        (flood(b"\n", None), "too_large"),
        (flood(b"x", None), "too_large"),
        (flood(b"vllm:num_requests_running 1\n", None), "too_large"),
        (flood(b"#", 100 * 1024 * 1024), "too_large"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@scenario
async def test_what_is_wrong_in_one_word(behave: Behaviour, problem: str) -> None:
    timeout_s = 0.5 if problem == "timeout" else 10.0  # a flood is read as fast as the machine can
    async with polled(behave, replica={"engine": "vllm"}, timeout_s=timeout_s) as (
        _engine,
        fixture,
    ):
        assert await fixture.problem() == problem
        assert await fixture.problem(2) == problem
        assert fixture.told.signals == []
        assert fixture.replica.reports.signals is NO_SIGNALS


@scenario
async def test_signals_outlive_a_few_bad_polls_and_not_many() -> None:
    async with polled({"/metrics": running(7)}, replica={"engine": "vllm"}, stale_s=0.8) as (
        engine,
        fixture,
    ):
        fixture.told.table.fleet.polls.stale_s = 0.8
        await fixture.signals()
        engine.answers = {"/metrics": response(500)}
        await fixture.problem()
        assert fixture.replica.reports.signals == Signals(running=7)
        await eventually(lambda: fixture.replica.reports.signals is NO_SIGNALS, "signals too old")
        assert fixture.replica.load == 0
        engine.answers = {"/metrics": running(2)}
        fixture.poller.poll_early(fixture.replica)
        await eventually(
            lambda: fixture.replica.reports.signals == Signals(running=2), "new signals"
        )


@pytest.mark.parametrize(
    "behave",
    [says(response(404)), says(text(b"")), flood(b"vllm:num_requests_running 1\n", None)],
    ids=["absent", "empty", "flood"],
)
@scenario
async def test_a_replica_without_metrics_is_asked_rarely(behave: Behaviour) -> None:
    async with (
        serving(behave) as engine,
        serving({"/metrics": running(1)}) as other,
        polling(
            engine.server.url, other.server.url, replica={"engine": "vllm"}, timeout_s=2
        ) as fixture,
    ):
        await fixture.problem(GIVE_UP)
        await fixture.polls(5, "r1")
        assert len(engine.server.connections) == GIVE_UP


@scenario
async def test_who_had_metrics_is_asked_on_until_they_are_too_old() -> None:
    async with polled({"/metrics": running(1)}, replica={"engine": "vllm"}, stale_s=3600) as (
        engine,
        fixture,
    ):
        await fixture.signals()
        engine.answers = {}
        await fixture.problem(2 * GIVE_UP)


# -- times ------------------------------------------------------------------------------------


@scenario
async def test_a_poll_may_be_asked_for_early() -> None:
    async with polled({"/metrics": running(1)}, replica={"engine": "vllm"}, **LAZY) as (
        engine,
        fixture,
    ):
        await eventually(lambda: fixture.poller.running == 1, "its task")
        await asyncio.sleep(0)
        assert engine.asked == []
        (turn,) = fixture.poller._turns.values()
        began = []
        for count in (1, 2, 3):
            fixture.poller.poll_early(fixture.replica)
            await fixture.signals(count)
            began.append(turn.began)
        assert all(later - sooner >= GAP_S for sooner, later in pairwise(began))


@scenario
async def test_any_hurry_makes_one_more_poll_and_never_two_at_once() -> None:
    under_way = 0
    most = 0
    asked = 0
    go = asyncio.Event()

    async def behave(connection: ReplicaConnection) -> None:
        nonlocal under_way, most, asked
        while await connection.recv_request():
            under_way += 1
            asked += 1
            most = max(most, under_way)
            await go.wait()
            under_way -= 1
            await connection.send(running(1))

    async with (
        serving(behave) as engine,
        serving({"/metrics": running(1)}) as other,
        polling(
            engine.server.url,
            other.server.url,
            replica={"engine": "vllm"},
            interval_s=3600.0,
            timeout_s=30,
        ) as fixture,
    ):
        fixture.poller.poll_early(fixture.replica)
        await eventually(lambda: asked == 1, "a poll")
        for _ in range(100):
            fixture.poller.poll_early(fixture.replica)
        await fixture.gaps(2, "r1")
        assert asked == 1
        go.set()
        await fixture.polls(2, "r0")
        await fixture.gaps(2, "r1")
        assert (asked, most) == (2, 1)


@scenario
async def test_all_causes_together_ask_one_question_in_a_gap() -> None:
    """Detection, fact queries, a missing source and constant requests for early polls share one
    query per interval.
    """
    absent = response(404)
    async with polled(
        {
            "/metrics": absent,
            "/server_info": response(200, body=b'{"mem_fraction_static": 0.9}'),
            "/v1/loads?include=core": response(
                200, body=b'{"loads": [{"num_running_reqs": 1, "num_waiting_reqs": 0}]}'
            ),
        },
        interval_s=0.1,
        refresh_s=0.3,
    ) as (engine, fixture):
        began = monotonic()
        while len(fixture.told.signals) < 8:
            fixture.poller.poll_early(fixture.replica)
            await asyncio.sleep(0.01)
        took_s = monotonic() - began
        (turn,) = fixture.poller._turns.values()
        assert len(engine.asked) <= took_s / gap_s(0.1) + turn.asked + 4


def test_a_gap_is_half_a_second_unless_the_operator_asks_for_less() -> None:
    assert [gap_s(interval_s) for interval_s in (60.0, 1.0, 0.1)] == [GAP_S, GAP_S, 0.1]


@scenario
async def test_a_page_that_has_nothing_new_is_asked_for_first_again() -> None:
    """TensorRT-LLM's iteration statistics are better than its gauges, and an idle engine has no
    iterations.
    """
    asked: list[str] = []
    page = b'trtllm_num_requests_running{a="b"} 2.0\ntrtllm_num_requests_waiting{a="b"} 1.0\n'
    iteration = b'[{"numActiveRequests": 7, "numQueuedRequests": 0}]'

    async def behave(connection: ReplicaConnection) -> None:
        received = await connection.recv_request()
        path = received.target
        asked.append(path)
        body = page if path == "/prometheus/metrics" else b"[]" if len(asked) < 5 else iteration
        await connection.send(response(200, "Connection: close", body=body))

    async with polled(behave, replica={"engine": "trtllm"}) as (_engine, fixture):
        found = await fixture.signals(4)
        assert (found[0].running, found[0].waiting) == (2, 1)
        assert found[-1].running == 7
        assert asked[:4] == ["/metrics", "/prometheus/metrics"] * 2


@scenario
async def test_never_means_never() -> None:
    async with polled({"/metrics": running(1)}, interval_s=0.0) as (engine, fixture):
        assert fixture.poller.running == 0
        fixture.poller.poll_early(fixture.replica)
        assert fixture.poller.running == 0
        assert engine.server.connections == []
        fixture.adopt(interval_s=0.02)
        await fixture.signals()
        fixture.adopt(interval_s=0.0)
        await eventually(lambda: fixture.poller.running == 0, "the end of its task")


@scenario
async def test_the_signals_end_with_the_polls() -> None:
    """Otherwise a replica would stay asleep, and a gate stay closed, until the program ends."""
    async with polled({"/metrics": running(1)}, dead_url(), interval_s=0.02) as (_engine, fixture):
        replica, unanswered = fixture.told.replicas.values()
        unanswered.reports.polls_awaited = 1_000_000
        await fixture.signals()
        polls = fixture.told.table.fleet.polls
        slept = msgspec.structs.replace(replica.reports.signals, asleep=True)
        polls.observed(replica, slept, poll_begins(replica, monotonic()), monotonic())
        assert replica.is_away
        heard = replica.polls_heard
        fixture.adopt(interval_s=0.0)
        assert replica.reports.signals is NO_SIGNALS
        assert not replica.is_away
        assert replica.foreign_load == 0
        assert replica.polls_heard > heard, "the gate must look at the replica"
        assert unanswered.reports.polls_awaited == 0


@scenario
async def test_a_new_interval_counts_at_once() -> None:
    async with polled({"/metrics": running(1)}, **LAZY) as (_engine, fixture):
        fixture.adopt(interval_s=0.02)
        await fixture.signals(2)


@scenario
async def test_an_unwatched_replica_is_asked_no_more() -> None:
    async with polled({"/metrics": running(1)}, replica={"engine": "vllm"}) as (engine, fixture):
        await fixture.signals()
        fixture.poller.unwatch(fixture.replica)
        await eventually(lambda: fixture.poller.running == 0, "the end of its task")
        asked, told = len(engine.asked), len(fixture.told.signals)
        fixture.poller.poll_early(fixture.replica)
        assert fixture.poller.running == 0
        assert (len(engine.asked), len(fixture.told.signals)) == (asked, told)
        fixture.poller.watch(fixture.replica)
        await fixture.signals(told + 1)


@scenario
async def test_what_comes_of_a_removed_replica_is_not_told() -> None:
    go = asyncio.Event()

    async def behave(connection: ReplicaConnection) -> None:
        await connection.recv_request()
        await go.wait()
        await connection.send(running(1))
        await until_closed(connection)

    async with polled(behave, replica={"engine": "vllm"}, timeout_s=30, **LAZY) as (
        engine,
        fixture,
    ):
        replica = fixture.replica
        (turn,) = fixture.poller._turns.values()
        fixture.poller.poll_early(replica)
        await engine.server.wait_for_requests(1)
        fixture.told.table.fleet.remove("r0")
        go.set()
        await eventually(lambda: turn.seen_at > 0.0, "the end of the poll")
        assert fixture.told.signals == []
        assert replica.reports.signals is NO_SIGNALS


@scenario
async def test_stopping_while_polls_hang() -> None:
    async with polled({"/metrics": None}, replica={"engine": "vllm"}, timeout_s=30) as (engine, _):
        await eventually(lambda: engine.asked == ["/metrics"], "a poll")


@scenario
async def test_a_poller_that_was_never_started_stops() -> None:
    async with polling(dead_url(), start=False) as fixture:
        fixture.poller.watch(fixture.replica)
        assert fixture.poller.running == 0


# -- detection, and the engines' own endpoints --------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "engine"),
    [
        ({"/metrics": answer("vllm-0.32-recorded.txt")}, "vllm"),
        ({"/metrics": answer("sglang-0.5.23.txt")}, "sglang"),
        ({"/metrics": answer("tgi-3.txt")}, "tgi"),
        ({"/metrics": answer("llamacpp.txt")}, "llamacpp"),
        ({"/metrics": answer("trtllm-iterations.json")}, "trtllm"),
        (
            {
                "/server_info": answer("sglang-server-info.json"),
                "/v1/loads?include=core": answer("sglang-loads.json"),
            },
            "sglang",
        ),
        (
            {
                "/metrics": response(501),
                "/props": answer("llamacpp-props.json"),
                "/slots": answer("llamacpp-slots.json"),
            },
            "llamacpp",
        ),
    ],
)
@scenario
async def test_an_engine_is_found_out(answers: Answers, engine: str) -> None:
    async with polled(answers, timeout_s=2) as (_server, fixture):
        await fixture.signals()
        assert fixture.replica.engine == engine
        assert fixture.last.running is not None


@scenario
async def test_who_owns_the_models_saves_the_question() -> None:
    async with polled({"/v1/loads?include=core": answer("sglang-loads.json")}, start=False) as (
        engine,
        fixture,
    ):
        fixture.replica.listed.objects = {"m": {"id": "m", "owned_by": "sglang"}}
        await fixture.poller.start()
        await fixture.signals()
        assert fixture.replica.engine == "sglang"
        assert "/props" not in engine.asked


@scenario
async def test_the_configuration_overrules_what_it_looks_like() -> None:
    async with polled({"/metrics": answer("sglang-0.5.23.txt")}, replica={"engine": "vllm"}) as (
        _engine,
        fixture,
    ):
        assert await fixture.problem() == "nothing"
        assert fixture.replica.engine == "vllm"


@scenario
async def test_a_stranger_is_asked_for_what_many_say() -> None:
    async with polled({"/metrics": answer("dynamo.txt")}) as (engine, fixture):
        assert await fixture.problem(GIVE_UP) == "nothing"
        assert fixture.replica.engine is None
        # The endpoints for detection were queried once, the metrics at every poll.
        assert engine.asked.count("/props") == engine.asked.count("/info") == 1
        assert engine.asked.count("/metrics") == 1 + GIVE_UP


@scenario
async def test_another_engine_at_the_same_address_is_noticed() -> None:
    async with polled({"/metrics": answer("vllm-0.32.txt")}, refresh_s=0.05, stale_s=0.1) as (
        engine,
        fixture,
    ):
        await fixture.signals()
        engine.answers = {"/metrics": answer("tgi-3.txt")}
        await eventually(lambda: fixture.replica.engine == "tgi", "another engine")
        await eventually(lambda: fixture.last == page("tgi-3.txt").signals, "its signals")


@scenario
async def test_sglang_without_metrics_tells_its_loads() -> None:
    answers: Answers = {
        "/v1/loads?include=core": answer("sglang-loads.json"),
        "/server_info": answer("sglang-server-info.json"),
    }
    async with polled(answers, replica={"engine": "sglang"}) as (engine, fixture):
        await fixture.signals(3)
        expected = msgspec.structs.replace(page("sglang-loads.json").signals, block_tokens=64)
        assert fixture.last == expected
        # The better source of metrics was tried once; it is tried again when models are read again.
        assert engine.asked.count("/metrics") == 1
        assert engine.asked.count("/server_info") == 1


@scenario
async def test_a_better_source_that_appears_is_found() -> None:
    async with polled(
        {"/v1/loads?include=core": answer("sglang-loads.json")},
        replica={"engine": "sglang"},
        refresh_s=0.05,
    ) as (engine, fixture):
        await fixture.signals()
        engine.answers = {**engine.answers, "/metrics": answer("sglang-0.5.23.txt")}
        await eventually(lambda: fixture.last.prompt_tokens == 65536, "the metrics")


@scenario
async def test_tensorrt_llm_is_asked_on_new_connections_and_keeps_its_last_word() -> None:
    answers: Answers = {"/metrics": answer("trtllm-iterations.json")}
    async with polled(answers, replica={"engine": "trtllm"}) as (engine, fixture):
        expected = page("trtllm-iterations.json").signals
        await fixture.signals()
        engine.answers = {"/metrics": text(b"[]")}
        told = len(fixture.told.signals)
        await fixture.signals(told + 2)
        assert fixture.told.signals[told][1] == expected
        await eventually(lambda: fixture.last.running == 0, "an idle engine")
        assert fixture.last == msgspec.structs.replace(expected, running=0, waiting=0)
        assert len(engine.server.connections) == len(engine.asked)


@scenario
async def test_an_idle_tensorrt_llm_is_not_given_up() -> None:
    async with polled({"/metrics": text(b"[]")}, replica={"engine": "trtllm"}) as (engine, fixture):
        assert await fixture.problem(2 * GIVE_UP) == "nothing"
        engine.answers = {"/metrics": answer("trtllm-iterations.json")}
        await fixture.signals()


@scenario
async def test_what_an_engine_said_before_it_was_gone_does_not_hold() -> None:
    async with polled(
        {"/metrics": answer("trtllm-iterations.json")}, replica={"engine": "trtllm"}
    ) as (engine, fixture):
        port = engine.server.port
        await fixture.signals()
        await engine.server.stop_listening()
        assert await fixture.problem() == "refused"
        told = len(fixture.told.signals)
        engine.answers = {"/metrics": text(b"[]")}
        engine.server.start(port)
        await eventually(lambda: fixture.told.problems[-1][1] == "nothing", "its new answers")
        assert len(fixture.told.signals) == told


@scenario
async def test_facts_that_hang_cost_one_poll_its_time_and_no_more() -> None:
    answers: Answers = {"/metrics": answer("tgi-3.txt"), "/info": None}
    async with polled(answers, replica={"engine": "tgi"}, timeout_s=0.1) as (engine, fixture):
        await fixture.signals(3)
        assert engine.asked.count("/info") == 1
        assert fixture.told.problems == []


# -- a large fleet ----------------------------------------------------------------------------


@scenario
async def test_many_replicas_are_asked_one_after_the_other() -> None:
    """The first polls are spread over one interval, and later polls never synchronise."""
    table = Table()
    for index in range(200):
        table.add(f"r{index}", None)
    pauses: list[float] = []

    class Listening(Random):
        def random(self) -> float:
            pauses.append(super().random())
            return pauses[-1]

    errors: list[BaseException] = []
    config = Config(polling=Polling(interval_s=3600.0))
    told = Told(table)
    poller = Poller(cast(Fleet, told), InForce(config), Listening(1), errors.append)
    await poller.start()
    await asyncio.sleep(0)
    assert poller.running == 200
    assert len(pauses) == 200
    buckets = [sum(1 for p in pauses if n <= p * 10 < n + 1) for n in range(10)]
    assert max(buckets) < 40
    await poller.stop()
    assert poller.running == 0
    table.close()
    assert not errors
