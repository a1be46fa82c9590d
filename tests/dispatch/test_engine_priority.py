"""Each engine is told in its own words, more urgent stays more urgent, and no client tells it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.config.model import Health
from router.config.model import Replica as ReplicaConfig
from router.core.urgency import Urgency, class_of, stepped
from router.dispatch.engine_priority import (
    NONE,
    PATHS,
    dialect_of,
    is_honoured,
    refuses,
    tell,
    write,
    written,
)
from router.fleet.replica import Replica

DIALECTS = [dialect for dialect in PATHS if dialect != NONE]
CHAT = b"/v1/chat/completions"
SGLANG_THRESHOLD = 10  # --priority-scheduling-preemption-threshold: displaced beyond it
ON_SCALE = st.floats(0, 4)
NUMBERS = st.builds(stepped, ON_SCALE, st.integers(0, 10_000))


def said(dialect: str, number: float) -> float:
    word = written(dialect, number)
    assert word is not None
    return float(word)


def urgency_there(dialect: str, number: float) -> float:
    """As the engine sees it: lower is sooner."""
    value = said(dialect, number)
    return -value if dialect in ("sglang", "trtllm") else value


@pytest.mark.parametrize(
    ("dialect", "words"),
    [
        ("vllm", ["-2000", "-1000", "0", "1000", "2000"]),
        ("sglang", ["200", "100", "0", "-100", "-200"]),
        ("sglang-low-first", ["-200", "-100", "0", "100", "200"]),
        ("trtllm", ["0.9000", "0.7000", "0.5000", "0.3000", "0.1000"]),
    ],
)
def test_the_classes_in_each_dialect(dialect: str, words: list[str]) -> None:
    assert [written(dialect, float(n)) for n in range(5)] == [word.encode() for word in words]


def test_where_there_is_no_word() -> None:
    assert written(NONE, 2.0) is None


@pytest.mark.parametrize("dialect", DIALECTS)
@given(a=NUMBERS, b=NUMBERS)
def test_more_urgent_is_never_less_urgent_there(dialect: str, a: float, b: float) -> None:
    if a <= b:
        assert urgency_there(dialect, a) <= urgency_there(dialect, b)
    if class_of(a) < class_of(b):
        assert urgency_there(dialect, a) < urgency_there(dialect, b), "classes never meet"


@pytest.mark.parametrize("dialect", DIALECTS)
@given(number=NUMBERS)
def test_what_is_said_is_what_the_engine_takes(dialect: str, number: float) -> None:
    value = msgspec.json.decode(written(dialect, number) or b"")
    if dialect == "trtllm":
        assert 0.0 <= value <= 1.0
    else:
        assert isinstance(value, int) and -(2**63) <= value < 2**63


@given(a=NUMBERS, b=NUMBERS)
def test_sglang_displaces_for_another_class_only(a: float, b: float) -> None:
    advantage = abs(said("sglang", a) - said("sglang", b))
    if class_of(a) == class_of(b):
        assert advantage < SGLANG_THRESHOLD
    else:
        assert advantage > SGLANG_THRESHOLD
    assert said("sglang-low-first", a) == -said("sglang", a)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_first_steps_of_a_flow_can_be_told_apart(dialect: str) -> None:
    for rank in range(5):
        told = [urgency_there(dialect, stepped(float(rank), step)) for step in range(3)]
        assert told == sorted(set(told))


# What is told.


@pytest.mark.parametrize("dialect", [*PATHS])
@pytest.mark.parametrize("path", [CHAT, b"/v1/completions", b"/v1/embeddings", b"/v1/messages"])
@pytest.mark.parametrize("rank", range(5))
def test_a_replica_is_told_or_it_is_counted(dialect: str, path: bytes, rank: int) -> None:
    told = tell(dialect, path, Urgency(float(rank), "body"), False)
    is_told = bool(told.member or told.header)
    if path in PATHS[dialect] and dialect.startswith("sglang"):
        assert is_told, "an absent one is the worst there is"
    if rank == 2:
        assert not told.drops
        assert not is_told or dialect.startswith("sglang")
    else:
        assert told.drops != is_told


def test_vllm_takes_it_from_a_header_where_the_body_has_no_place() -> None:
    told = tell("vllm", b"/v1/messages", Urgency(1.0, "body"), False)
    assert (told.member, told.header, told.drops) == (b"", b"\r\nx-vllm-priority: -1000", False)


def test_what_was_not_read_is_told_even_what_goes_without_saying() -> None:
    assert tell("vllm", CHAT, Urgency(2.0, "default"), True).member == b'"priority":0'
    assert tell("trtllm", CHAT, Urgency(2.0, "default"), True).member == b'"priority":0.5000'


# Writing.


def joined(body: list[bytes] | None) -> bytes:
    assert body is not None
    return b"".join(body)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ([b'{"a":1}'], b'{"a":1,"priority":7}'),
        ([b'{"a":1', b"}"], b'{"a":1,"priority":7}'),
        ([b"{}"], b'{"priority":7}'),
        ([b' {"a": "}" } \r\n'], b'{"a": "}","priority":7}'),
    ],
)
def test_an_absent_one_is_appended(body: list[bytes], expected: bytes) -> None:
    changed = joined(write(body, b'"priority":7', False))
    assert json.loads(changed) == json.loads(expected)
    assert changed.replace(b" ", b"").strip() == expected.replace(b" ", b"")


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
    if changed is None:
        assert any(0xD800 <= ord(c) < 0xE000 for c in text.decode("utf-8", "surrogatepass"))
    else:
        assert json.loads(joined(changed)) == {**members, "priority": 7}


# Whose dialect.


def a_replica(engine: str | None = None, priority: Any = None) -> Replica:
    config = ReplicaConfig(url="http://gpu:1", id="r", priority=priority)
    replica = Replica(config, Health(), None)  # type: ignore[arg-type]
    replica.engine = engine
    return replica


@pytest.mark.parametrize(
    ("engine", "priority", "dialect", "honoured"),
    [
        ("vllm", None, "vllm", None),  # it takes the field whatever it schedules by
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
    assert (dialect_of(replica), is_honoured(replica)) == (dialect, honoured)


def test_sglang_tells_how_it_schedules() -> None:
    replica = a_replica("sglang")
    replica.by_priority, replica.low_first = True, True
    assert (dialect_of(replica), is_honoured(replica)) == ("sglang-low-first", True)
    replica.low_first = False
    assert (dialect_of(replica), is_honoured(replica)) == ("sglang", True)
    replica.by_priority = False
    assert (dialect_of(replica), is_honoured(replica)) == (NONE, False)


def test_who_has_refused_it_is_told_none() -> None:
    replica = a_replica("trtllm", "trtllm")
    replica.refuses_priority = True
    assert (dialect_of(replica), is_honoured(replica)) == (NONE, False)
    replica.adopt(replica.config, Health())
    assert replica.refuses_priority, "a reload that says nothing of it changes nothing"
    replica.adopt(ReplicaConfig(url="http://gpu:1", id="r"), Health())
    assert not replica.refuses_priority


@pytest.mark.parametrize(
    "answer",
    [
        # TensorRT-LLM (pydantic's words, in the shapes of two versions)
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
def test_engines_that_know_no_priority_say_so(answer: bytes) -> None:
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
