"""Special cases of each engine: duplicate labels, lists that are emptied, omitted zeros."""

import msgspec
import pytest

from router.fleet.engines import sglang, trtllm
from router.fleet.engines.common.base import ABSENT, Facts, Known
from router.fleet.engines.common.registry import ENGINES
from router.fleet.signals import NO_SIGNALS, Signals
from tests.fleet.engines.pages import page, read as page_bytes

VLLM = ENGINES["vllm"].sources[0]
SGLANG, LOADS = ENGINES["sglang"].sources
ITERATIONS, TRTLLM = ENGINES["trtllm"].sources
LLAMACPP, SLOTS = ENGINES["llamacpp"].sources


# -- vLLM -------------------------------------------------------------------------------------


def vllm_of(*lines: str) -> Signals:
    signals = VLLM.parse("\n".join([*lines, ""]).encode())
    assert signals is not None
    return signals


def test_ranks_are_summed_and_the_fullest_counts() -> None:
    signals = vllm_of(
        *(f'vllm:num_requests_running{{engine="{n}"}} {n}' for n in range(4)),
        *(f'vllm:kv_cache_usage_perc{{engine="{n}"}} 0.{n}' for n in range(4)),
    )
    assert (signals.running, signals.kv_usage) == (6, 0.3)


def test_one_rank_that_says_nan_makes_the_sum_unknown() -> None:
    signals = vllm_of(
        'vllm:num_requests_running{engine="0"} 1',
        'vllm:num_requests_running{engine="1"} NaN',
        'vllm:num_requests_waiting{engine="0"} 4',
        'vllm:kv_cache_usage_perc{engine="0"} NaN',
        'vllm:kv_cache_usage_perc{engine="1"} 0.9',
    )
    assert (signals.running, signals.waiting, signals.kv_usage) == (None, 4, None)


def test_what_waits_for_something_else_than_a_slot_is_not_queued() -> None:
    by_reason = "vllm:num_requests_waiting_by_reason"
    waiting = 'vllm:num_requests_waiting{engine="0"} 9'
    capacity = f'{by_reason}{{engine="0",reason="capacity"}} 2'
    deferred = f'{by_reason}{{engine="0",reason="deferred"}} 7'
    assert vllm_of(waiting, capacity, deferred).waiting == 2
    assert vllm_of(waiting, deferred).waiting == 9
    assert vllm_of(waiting, capacity, f"{by_reason}{{x 1").waiting is None


def test_the_size_of_the_kv_caches_of_all_ranks() -> None:
    def info(engine: int, blocks: str, tokens: str = "None") -> str:
        labels = f'engine="{engine}",kv_cache_size_tokens="{tokens}",num_gpu_blocks="{blocks}"'
        return f'vllm:cache_config_info{{block_size="16",{labels}}} 1.0'

    assert vllm_of(info(0, "None"), info(0, "10")).kv_tokens == 160
    assert vllm_of(info(0, "10"), info(0, "None")).kv_tokens == 160
    # vLLM reports the sum of the blocks, and the tokens of one rank, in each series.
    assert vllm_of(info(0, "30"), info(1, "30")).kv_tokens == 480
    assert vllm_of(info(0, "30", "200"), info(1, "30", "200")).kv_tokens == 400
    for unknown in ("None", "", "-5", "1.5", "٣", "0", "9" * 13):
        assert vllm_of(info(0, unknown)).kv_tokens is None
        assert vllm_of(info(0, unknown)).block_tokens == 16
        assert vllm_of(info(0, "10", unknown)).kv_tokens == 160


def test_the_newest_series_tells_the_adapters() -> None:
    def lora(running: str, at: str) -> str:
        return f'vllm:lora_requests_info{{running_lora_adapters="{running}"}} {at}'

    assert vllm_of(lora("a,b", "10"), lora("", "20")).adapters == frozenset()
    assert vllm_of(lora("a, b", "1.7e9"), lora("c", "1.6e9")).adapters == {"a", "b"}
    assert vllm_of(lora("a", "NaN")).adapters == frozenset()


@pytest.mark.parametrize(("awake", "asleep"), [("0.0", True), ("1.0", False), ("NaN", False)])
def test_only_an_engine_that_says_so_sleeps(awake: str, asleep: bool) -> None:
    line = f'vllm:engine_sleep_state{{engine="0",sleep_state="awake"}} {awake}'
    other = 'vllm:engine_sleep_state{engine="0",sleep_state="discard_all"} 0.0'
    assert vllm_of(line, other).asleep is asleep


# -- SGLang -----------------------------------------------------------------------------------


def sglang_of(*lines: str) -> Signals:
    signals = SGLANG.parse("\n".join([*lines, ""]).encode())
    assert signals is not None
    return signals


def test_breakdowns_by_priority_alone_are_no_total() -> None:
    assert sglang_of('sglang:num_running_reqs{priority="5",tp_rank="0"} 4').running is None


def test_counters_by_priority_are_all_of_them() -> None:
    signals = sglang_of(
        'sglang:prompt_tokens_total{priority=""} 10',
        'sglang:prompt_tokens_total{priority="5"} 20',
        'sglang:cached_tokens_total{cache_source="device",priority=""} 1',
        'sglang:cached_tokens_total{cache_source="host",priority="5"} 2',
    )
    assert (signals.prompt_tokens, signals.cache_hits) == (30, 3)


def test_ranks_are_compared_as_numbers() -> None:
    ranks = (f'sglang:num_running_reqs{{tp_rank="{rank}"}} {rank}' for rank in (10, 9, 11))
    assert sglang_of(*ranks).running == 9


def test_every_queue_counts() -> None:
    names = [sglang.QUEUE, *sglang.MORE_QUEUES]
    lines = [f'sglang:{name}{{tp_rank="0"}} {2**n}' for n, name in enumerate(names)]
    assert sglang_of(*lines).waiting == 2 ** len(names) - 1
    assert sglang_of(*lines, "sglang:num_grammar_queue_reqs NaN").waiting is None
    assert sglang_of(*lines[1:]).waiting is None


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b'{"loads": 3}', b'{"loads": [3]}', b"null", b"", b"\xff"]
)
def test_what_is_no_answer_of_loads(body: bytes) -> None:
    assert LOADS.parse(body) is None


def test_a_rank_that_does_not_say_makes_the_sum_unknown() -> None:
    body = b'{"loads": [{"num_running_reqs": 1, "num_waiting_reqs": 2}, {"num_running_reqs": 1}]}'
    assert LOADS.parse(body) == Signals(running=2)
    assert LOADS.parse(b'{"loads": []}') == NO_SIGNALS


# -- TensorRT-LLM -----------------------------------------------------------------------------


def test_the_last_iteration_is_the_newest() -> None:
    body = b'[{"numActiveRequests": 9}, {"numActiveRequests": 2, "numQueuedRequests": 1}]'
    assert ITERATIONS.parse(body) == Signals(running=2, waiting=1)


def test_an_empty_list_keeps_what_was_said_last() -> None:
    last = page("trtllm-iterations.json").signals
    for empty in range(trtllm.IDLE_AFTER - 1):
        assert ITERATIONS.parse(b"[]", Known(last=last, empty=empty)) == last
    assert ITERATIONS.parse(b"[]") == NO_SIGNALS


def test_an_engine_that_iterates_no_more_is_idle() -> None:
    last = page("trtllm-iterations.json").signals
    idle = ITERATIONS.parse(b"[]", Known(last=last, empty=trtllm.IDLE_AFTER - 1))
    assert idle == msgspec.structs.replace(last, running=0, waiting=0)
    # An engine that never reported anything may have its statistics switched off.
    assert ITERATIONS.parse(b"[]", Known(empty=100)) == NO_SIGNALS


@pytest.mark.parametrize("body", [b"{}", b"null", b"3", b"", b'"x"'])
def test_what_is_no_list_of_iterations(body: bytes) -> None:
    assert ITERATIONS.parse(body) is None


def test_an_iteration_that_is_no_object() -> None:
    odd: set[str] = set()
    assert ITERATIONS.parse(b"[3]", odd=odd) == NO_SIGNALS
    assert odd == {"iteration"}


def test_more_blocks_in_use_than_there_are() -> None:
    odd: set[str] = set()
    body = b'[{"kvCacheStats": {"maxNumBlocks": 10, "usedNumBlocks": 11, "tokensPerBlock": 32}}]'
    assert ITERATIONS.parse(body, odd=odd) == Signals(kv_tokens=320, block_tokens=32)
    assert odd == {"usedNumBlocks"}


# -- TGI --------------------------------------------------------------------------------------


def test_gauges_never_set_are_zero_where_anything_of_tgi_is() -> None:
    assert ENGINES["tgi"].sources[0].parse(b"tgi_request_count 1\n") == Signals(
        running=0, waiting=0
    )
    assert ENGINES["tgi"].sources[0].parse(b"") == NO_SIGNALS


def test_a_gauge_that_says_nonsense_is_not_zero() -> None:
    signals = ENGINES["tgi"].sources[0].parse(b"tgi_queue_size NaN\ntgi_batch_current_size 1\n")
    assert signals == Signals(running=1)


# -- llama.cpp --------------------------------------------------------------------------------


def test_slots_that_do_not_say_whether_they_work() -> None:
    odd: set[str] = set()
    assert SLOTS.parse(b'[{"id": 0, "is_processing": 1}]', odd=odd) == Signals(slots=1)
    assert odd == {"is_processing"}
    assert SLOTS.parse(b"[]") is None
    assert SLOTS.parse(b'{"error": {"code": 501}}') is None


def test_without_the_number_of_slots_the_usage_is_unknown() -> None:
    body = b"llamacpp:requests_processing 2\n"
    assert LLAMACPP.parse(body) == Signals(running=2)
    known = Known(facts=Facts(slots=1))
    assert LLAMACPP.parse(body, known) == Signals(running=2, kv_usage=1.0, slots=1)


# -- data -------------------------------------------------------------------------------------


def test_a_check_decides_unless_the_path_is_not_there() -> None:
    ready, health = ENGINES["sglang"].health
    assert [status for status in (0, 200, 401, 404, 500, 503) if ready.decides(status)] == [
        0,
        200,
        503,
    ]
    assert health.timeout_s >= 5
    assert all(not health.decides(status) for status in ABSENT)
    assert health.decides(401)


def test_a_page_of_trtllm_on_which_no_request_has_ended_says_nothing_of_now() -> None:
    first = TRTLLM.parse(page_bytes("trtllm.txt"))
    assert first is not None and first.waiting is not None
    again = TRTLLM.parse(page_bytes("trtllm.txt"), Known(last=first))
    assert again is not None
    if first.prompt_tokens is not None:
        assert (again.running, again.waiting, again.kv_usage) == (None, None, None)
        assert again.slots == first.slots


def test_sglang_tells_what_its_schedulers_run_at_once() -> None:
    facts = ENGINES["sglang"].facts
    assert facts is not None
    rank = b'{"effective_max_running_requests_per_dp": 52}'
    told = b'{"max_running_requests": null, "internal_states": %b}'
    assert facts.parse(told % (b"[%b, %b]" % (rank, rank))).slots == 104
    assert facts.parse(told % b"[{}]").slots is None
    assert facts.parse(b'{"max_running_requests": 7, "internal_states": [1]}').slots == 7
