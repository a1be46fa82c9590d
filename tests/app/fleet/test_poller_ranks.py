"""One poll of an address gives the signals of each of its data-parallel ranks."""

from tests.app.fleet.servers import Answers
from tests.app.fleet.test_poller import LAZY, answer, polled, running
from tests.fleet.engines.pages import page
from tests.harness.replica import eventually
from tests.harness.running import scenario

SLOTS = 256  # as in the recorded facts of SGLang


@scenario
async def test_each_rank_gets_its_own_signals() -> None:
    async with polled({"/metrics": answer("vllm-0.32.txt")}) as (engine, fixture):
        fixture.told.has_ranks = True
        replicas = fixture.told.replicas
        await eventually(lambda: len(replicas) == 2, "the ranks")
        first, second = replicas.values()
        assert second.id == "r0@1"
        await fixture.polls(2, "r0@1")
        assert [r.reports.signals.running for r in (first, second)] == [3, 5]
        assert [r.load for r in (first, second)] == [3, 11]
        asked, told = len(engine.asked), fixture.answered("r0")
        await fixture.polls(3, "r0@1")
        polls = fixture.answered("r0") - told
        assert len(engine.asked) - asked <= polls + 1, "one request for all ranks"
        assert first.polls_heard >= second.polls_heard


@scenario
async def test_an_early_poll_of_any_rank_is_one_of_the_address() -> None:
    async with polled(
        {"/metrics": answer("vllm-0.32.txt")}, replica={"data_parallel_ranks": 2}, **LAZY
    ) as (_engine, fixture):
        fixture.told.has_ranks = True
        fixture.poller.poll_early(fixture.told.replicas["r0@1"])
        await fixture.signals(2)
        assert [id for id, _, _ in fixture.told.signals] == ["r0", "r0@1"]


@scenario
async def test_an_engine_that_reports_no_ranks_is_split_if_configured() -> None:
    async with polled(
        {"/metrics": running(7)}, replica={"engine": "vllm", "data_parallel_ranks": 2}
    ) as (_engine, fixture):
        fixture.told.has_ranks = True
        await fixture.polls(1, "r0@1")
        ranks = fixture.replica.ranks
        assert [r.reports.signals.running for r in ranks] == [None, None], "7 are those of both"
        assert [r.load for r in ranks] == [0, 0]


@scenario
async def test_the_slots_of_the_engine_are_shared() -> None:
    answers: Answers = {
        "/metrics": answer("sglang-0.5.23-dp.txt"),
        "/server_info": answer("sglang-server-info.json"),
    }
    async with polled(answers, replica={"engine": "sglang"}) as (_engine, fixture):
        fixture.told.has_ranks = True
        await fixture.polls(1, "r0@1")
        assert [r.reports.signals.slots for r in fixture.replica.ranks] == [SLOTS // 2] * 2


@scenario
async def test_the_engine_chooses_the_rank_if_configured() -> None:
    async with polled(
        {"/metrics": answer("vllm-0.32.txt")}, replica={"data_parallel_ranks": 1}
    ) as (_engine, fixture):
        fixture.told.has_ranks = True
        found = await fixture.signals(3)
        assert set(found) == {page("vllm-0.32.txt").signals}
        assert list(fixture.told.replicas) == ["r0"]


@scenario
async def test_a_poll_that_fails_is_one_of_all_ranks() -> None:
    async with polled({"/metrics": answer("vllm-0.32.txt")}, stale_s=0.1) as (engine, fixture):
        fixture.told.has_ranks = True
        await fixture.polls(1, "r0@1")
        engine.answers = {"/metrics": answer("llamacpp-props.json")}
        await fixture.problem()
        assert {id for id, _ in fixture.told.problems} == {"r0", "r0@1"}
