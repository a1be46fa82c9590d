"""The priority field of each engine, a client's own value, and replicas that get no priority."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from router.config.model import Health, Replica as ReplicaConfig
from router.core.urgency import Urgency
from router.dispatch.attempts.body_edit import append
from router.dispatch.attempts.engine_priority import (
    PATIENCE_S,
    IgnoredNumbers,
    PriorityParts,
    dialect_of,
    is_honoured,
    priority_parts,
    refuses,
    without,
)
from router.fleet.dialects import MIXED, NONE, UNKNOWN
from router.fleet.engines.common.priority import EPOCH, SILENT
from router.fleet.engines.common.registry import DIALECTS
from router.fleet.replica import Replica

CHAT = b"/v1/chat/completions"
ARRIVED, LEVEL_S = EPOCH + 1e7, 300.0


def told_to(dialect: str, path: bytes, number: float, must: bool = False) -> PriorityParts:
    return priority_parts(
        DIALECTS.get(dialect, SILENT), False, path, Urgency(number, "body"), ARRIVED, LEVEL_S, must
    )


def write(body: list[bytes], member: bytes, is_there: bool) -> list[bytes] | None:
    """The body of an attempt: without the client's priority, with the router's at the end."""
    clean = without(body) if is_there else None
    return append(clean or body, member) if member else clean


# The priority value that is sent.


@pytest.mark.parametrize("dialect", [*DIALECTS, NONE])
@pytest.mark.parametrize("path", [CHAT, b"/v1/completions", b"/v1/embeddings", b"/v1/messages"])
@pytest.mark.parametrize("rank", range(5))
def test_a_replica_gets_the_priority_or_the_drop_is_counted(
    dialect: str, path: bytes, rank: int
) -> None:
    told = told_to(dialect, path, float(rank))
    is_told = bool(told.member or told.header)
    spoken = DIALECTS.get(dialect, SILENT)
    if path in spoken.paths and spoken.tells_normal:
        assert is_told, "an absent one is the worst there is, or the best"
    if rank == 2:
        assert not told.drops
    else:
        assert told.drops != is_told


def test_vllm_takes_it_from_a_header_where_the_body_has_no_place() -> None:
    for number in (1.0, 2.0):
        told = told_to("vllm", b"/v1/messages", number)
        word = DIALECTS["vllm"].write(number, ARRIVED, LEVEL_S, False)
        assert (told.member, told.drops) == (b"", False)
        assert told.header == b"\r\nx-vllm-priority: " + word


def test_a_required_member_is_written_even_with_the_default_value() -> None:
    assert told_to("trtllm", CHAT, 2.0).member == b""
    assert told_to("trtllm", CHAT, 2.0, must=True).member == b'"priority":0.5000'


# Writing the priority field.


def joined(body: list[bytes] | None) -> bytes:
    assert body is not None
    return b"".join(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"priority":0,"a":1}',
        b'{"a":1,"priority":"high","b":[1.0,{"priority":3}]}',
        b'{"priority":1,"a":2,"priority":{"x":1}}',
        b'{"\\u0070riority":-9, "a":1}',
        b'{"priority" : null}',
    ],
)
def test_a_clients_own_is_gone(body: bytes) -> None:
    rest = json.loads(body)
    del rest["priority"]
    changed = joined(write([body[:9], body[9:]], b'"priority":7', True))
    assert json.loads(changed) == {**rest, "priority": 7}
    top = msgspec.json.decode(changed, type=dict[str, msgspec.Raw])
    assert len(top) == len(rest) + 1
    assert json.loads(joined(write([body], b"", True))) == rest


def test_every_other_member_stays_as_its_client_wrote_it() -> None:
    body = b'{"x": 1.50, "priority": 5, "y": {"a" :[1e2 ,"\\u00e9"]}, "n": 10000000000000000001}'
    changed = joined(write([body], b'"priority":7', True))
    for spelling in (b"1.50", b'{"a" :[1e2 ,"\\u00e9"]}', b"10000000000000000001"):
        assert spelling in changed


@pytest.mark.parametrize("body", [b"", b"[1]", b"\x1f\x8b\x08gzip", b'"priority"', b'{"a":1'])
def test_what_is_no_object_stays(body: bytes) -> None:
    assert write([body], b'"priority":7', False) is None
    assert write([body], b'"priority":7', True) is None
    assert write([body], b"", True) is None


MEMBERS = st.dictionaries(
    st.text(max_size=8) | st.just("priority"),
    st.none() | st.integers() | st.text(max_size=8) | st.lists(st.booleans(), max_size=3),
    max_size=6,
)


@given(MEMBERS, st.integers(0, 40), st.booleans())
def test_any_object(members: dict[str, Any], cut: int, ascii_only: bool) -> None:
    text = json.dumps(members, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    changed = write([text[:cut], text[cut:]], b'"priority":7', "priority" in members)
    assert changed is not None
    assert json.loads(joined(changed)) == {**members, "priority": 7}


# The engine whose priority format is used.


def a_replica(engine: str | None = None, priority: Any = None) -> Replica:
    config = ReplicaConfig(url="http://gpu:1", id="r", priority=priority)
    replica = Replica(config, Health(), None)
    replica.engine = engine
    return replica


@pytest.mark.parametrize(
    ("engine", "priority", "dialect", "honoured"),
    [
        ("vllm", None, "vllm", None),  # vLLM accepts the field for any scheduling policy
        ("sglang", None, "sglang", None),
        ("trtllm", None, "trtllm", None),
        ("tgi", None, NONE, False),
        ("llamacpp", None, NONE, False),
        ("other", None, NONE, False),
        (None, None, NONE, None),
        ("vllm", "vllm", "vllm", True),
        ("vllm", "none", NONE, False),
        ("other", "sglang-low-first", "sglang-low-first", True),
        (None, "trtllm", "trtllm", True),
    ],
)
def test_a_replicas_dialect(
    engine: str | None, priority: str | None, dialect: str, honoured: bool | None
) -> None:
    replica = a_replica(engine, priority)
    assert (dialect_of(replica).name, is_honoured(replica)) == (dialect, honoured)


def test_the_scheduling_of_sglang_is_detected() -> None:
    replica = a_replica("sglang")
    replica.endpoint.by_priority, replica.endpoint.low_first = True, True
    assert (dialect_of(replica).name, is_honoured(replica)) == ("sglang-low-first", True)
    replica.endpoint.low_first = False
    assert (dialect_of(replica).name, is_honoured(replica)) == ("sglang", True)
    replica.endpoint.by_priority = False
    assert (dialect_of(replica).name, is_honoured(replica)) == (NONE, False)


def test_a_replica_that_refused_a_priority_gets_none() -> None:
    replica = a_replica("trtllm", "trtllm")
    replica.errors.refuses_priority = True
    assert (dialect_of(replica).name, is_honoured(replica)) == (NONE, False)
    replica.adopt(replica.config, Health(), None)
    assert replica.errors.refuses_priority, "a reload that says nothing of it changes nothing"
    replica.adopt(ReplicaConfig(url="http://gpu:1", id="r"), Health(), None)
    assert not replica.errors.refuses_priority


@pytest.mark.parametrize(
    "answer",
    [
        # TensorRT-LLM (pydantic's messages, in the formats of two versions)
        b"[{'type': 'extra_forbidden', 'loc': ('body', 'priority'), 'msg': 'Extra inputs are not "
        b"permitted', 'input': 0.7}]",
        b'{"object":"error","message":"1 validation error for ChatCompletionRequest\\npriority\\n  '
        b'Extra inputs are not permitted [type=extra_forbidden, input_value=0.7]"}',
        # vLLM's V0, and its first V1
        b'{"message":"Got priority 5 but Priority scheduling is not enabled."}',
        b'{"message":"V1 does not support priority yet."}',
        # SGLang --abort-on-priority-when-disabled
        b"Using priority is disabled for this server. Please send a new request without a "
        b"priority.",
    ],
)
def test_engines_without_priorities_are_detected(answer: bytes) -> None:
    assert refuses(answer)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b'{"message":"Extra inputs are not permitted","param":"top_k"}',
        b'{"message":"The request is aborted by a higher priority request."}',
        b'{"message":"This model\'s maximum context length is 4096 tokens"}',
    ],
)
def test_other_refusals_are_the_clients_own(answer: bytes) -> None:
    assert not refuses(answer)


def test_a_name_with_half_a_surrogate_pair_keeps_no_priority() -> None:
    for raw, clean in (
        (b'{"priority":9,"\\ud800":0,"a":1}', b'{"\\ud800":0,"a":1}'),
        (b'{"\\ud800":0, "a":1, "priority":9}', b'{"\\ud800":0, "a":1}'),
        (b'{"priority":9,"\\ud800":0,"pri\\u006frity":9}', b'{"\\ud800":0}'),
    ):
        assert b"".join(without([raw]) or []) == clean
    assert without([b'{"priority":9,"\\ud800":0']) is None


# -- ignored numbers: one warning per model, none before its engines are detected ------------------

MODELS = {"m", "n"}


def warned(caplog: pytest.LogCaptureFixture) -> list[tuple[object, object]]:
    fields = [record.__dict__["fields"] for record in caplog.records]
    return [(one["model"], one["dialect"]) for one in fields]


def test_one_warning_a_model(caplog: pytest.LogCaptureFixture) -> None:
    numbers = IgnoredNumbers()
    for _ in range(3):
        numbers.ignored("m", MODELS, MIXED, 1.0)
        numbers.ignored("n", MODELS, NONE, 1.0)
    assert warned(caplog) == [("m", MIXED), ("n", NONE)]


def test_an_engine_has_time_to_be_detected(caplog: pytest.LogCaptureFixture) -> None:
    numbers = IgnoredNumbers()
    numbers.ignored("m", MODELS, UNKNOWN, 100.0)
    numbers.ignored("m", MODELS, UNKNOWN, 100.0 + 0.9 * PATIENCE_S)
    assert warned(caplog) == []
    numbers.ignored("m", MODELS, UNKNOWN, 100.0 + PATIENCE_S)
    assert warned(caplog) == [("m", UNKNOWN)]


def test_names_of_clients_are_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    numbers = IgnoredNumbers()
    for n in range(1000):
        numbers.ignored(f"invented-{n}", MODELS, UNKNOWN, 1.0)
        numbers.ignored(f"invented-{n}", MODELS, MIXED, 1.0)
    assert warned(caplog) == [(None, MIXED)]
    assert len(numbers._warned) == 1 and not numbers._since
