"""The router requests the usage for the client, and changes nothing else.

`meaning` restates each engine's treatment of `stream_options`, from the engines' own definitions;
every injected option is checked with it.
"""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from router.core.flags import flag_of
from router.dispatch.attempts.body_edit import append
from router.dispatch.usage.usage_ask import asking, replaced
from router.fleet.engines.common.registry import ENGINES as ALL, engine_of

ABSENT: Any = "nothing said"
# Defaults of a missing member: whether the engine sends one usage event, or usage with each event.
DEFAULTS = {"vllm": (True, False), "sglang": (False, False), "trtllm": (True, True)}
ENGINES = sorted(DEFAULTS)


def body(options: Any = ABSENT, **more: Any) -> bytes:
    members = {"model": "m", "stream": True, **more}
    if options is not ABSENT:
        members["stream_options"] = options
    return json.dumps(members).encode()


def asked(options: Any) -> bytes | None:
    return None if options is ABSENT else json.dumps(options).encode()


def meaning(engine: str, options: Any) -> tuple[bool, bool]:
    """Whether a usage event comes at the end, and whether every event has one."""
    if options is ABSENT or options is None:
        return False, False
    at_end, always = DEFAULTS[engine]
    at_end = bool(flag_of(options.get("include_usage", at_end)))
    always = bool(flag_of(options.get("continuous_usage_stats", always)))
    return at_end, always if engine == "sglang" else at_end and always


def inject(pieces: list[bytes], asked: bytes | None, engine: str | None) -> list[bytes] | None:
    """The two ways of requesting usage: a further member, or another value."""
    ask = engine_of(engine).usage_ask
    if ask is None:
        return None
    if asked is None:
        return append(pieces, ask.member)
    found = asking(asked, ask)
    if found is None:
        return None
    body = replaced(pieces, asked, found[0])
    return append(pieces, b'"stream_options":' + found[0]) if body is None else body


def injected(options: Any, engine: str) -> dict[str, Any] | None:
    """The decoded body after the injection; None: unchanged."""
    pieces = inject([body(options)], asked(options), engine)
    return None if pieces is None else dict(json.loads(b"".join(pieces)))


def test_each_engine_that_is_asked_is_written_down_here() -> None:
    assert {name for name, engine in ALL.items() if engine.usage_ask is not None} == {*ENGINES}


SILENT: list[Any] = [
    ABSENT,
    None,
    {"include_usage": False},
    {"include_usage": None},
    {"include_usage": False, "continuous_usage_stats": False},
    {"include_usage": False, "later": {"a": [1]}},
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("options", SILENT, ids=str)
def test_usage_is_requested_for_clients_that_do_not_ask(engine: str, options: Any) -> None:
    assert meaning(engine, options) == (False, False)
    changed = injected(options, engine)
    assert changed is not None
    assert meaning(engine, changed["stream_options"]) == (True, False)
    others = {} if options is ABSENT or options is None else dict(options)
    for name, value in others.items():
        if name not in ("include_usage", "continuous_usage_stats"):
            assert changed["stream_options"][name] == value
    del changed["stream_options"]
    assert changed == {"model": "m", "stream": True}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("always", [ABSENT, None, False, True])
@pytest.mark.parametrize("at_end", [ABSENT, None, False, True])
def test_the_events_with_content_stay_what_they_were(engine: str, at_end: Any, always: Any) -> None:
    """A client that requested the event gets it, and no other event gets a usage."""
    given_ = {"include_usage": at_end, "continuous_usage_stats": always}
    options = {name: value for name, value in given_.items() if value is not ABSENT}
    before = meaning(engine, options)
    changed = injected(options, engine)
    if before != (False, False):
        assert changed is None  # the engine reports its counts already
    else:
        assert changed is not None
        assert meaning(engine, changed["stream_options"]) == (True, False)


TRUE: list[Any] = [1, 1.0, "1", "on", "T", "true", "True", "y", "YES"]
FALSE: list[Any] = [0, 0.0, "0", "off", "F", "false", "False", "n", "NO"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("value", TRUE)
def test_a_value_that_engines_read_as_true_becomes_true(engine: str, value: Any) -> None:
    given_ = json.dumps({"include_usage": value, "a": 1}).encode()
    ask = engine_of(engine).usage_ask
    assert ask is not None
    found = asking(given_, ask)
    assert found is not None and json.loads(found[0]) == {"include_usage": True, "a": 1}
    assert not found[1]  # the client wants the event


LONG = "x" * 5000
HIDDEN: list[Any] = [
    *({"include_usage": value} for value in (*FALSE, "maybe", 2, [], {}, "")),
    *({"include_usage": False, "continuous_usage_stats": value} for value in (0, "off", "maybe")),
    *({"include_usage": False, "a": LONG * factor} for factor in (1, 20)),
    *("yes", True, 3, [], [{"include_usage": False}]),
]


# These engines ignore the other option without `include_usage`.
IN_VAIN = [{"include_usage": 0, "continuous_usage_stats": value} for value in TRUE]


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        *((engine, options) for engine in ENGINES for options in HIDDEN),
        *((engine, options) for engine in ("vllm", "trtllm") for options in IN_VAIN),
    ],
    ids=lambda value: str(value)[:60],
)
def test_no_value_hides_the_usage(engine: str, options: Any) -> None:
    changed = injected(options, engine)
    assert changed is not None
    assert meaning(engine, changed["stream_options"]) == (True, False)


@pytest.mark.parametrize("engine", ["tgi", "llamacpp", "other", "", None])
def test_an_engine_that_may_not_know_it_is_not_asked(engine: str | None) -> None:
    assert inject([body()], None, engine) is None
    assert inject([body({"include_usage": False})], b'{"include_usage": false}', engine) is None


def test_trtllm_gets_no_field_that_it_did_not_define() -> None:
    """TensorRT-LLM rejects unknown fields, and its defaults would put a usage on every event."""
    changed = injected(ABSENT, "trtllm")
    assert changed is not None
    assert set(changed["stream_options"]) == {"include_usage", "continuous_usage_stats"}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("before", [b"", b" \r\n\t", b" " * 10])
def test_the_rest_of_the_body_is_not_encoded_anew(engine: str, size: int, before: bytes) -> None:
    odd = before + b'{ "n":1.50,"stream" :true,\n"text":"\\u00e9\\/\xc3\xa9", "model":"m" } \n'
    pieces = inject([odd[at : at + size] for at in range(0, len(odd), size)], None, engine)
    assert pieces is not None
    ask = engine_of(engine).usage_ask
    assert ask is not None
    member = b',"stream_options":' + ask.options
    assert b"".join(pieces) == odd.replace(b" } \n", member + b" } \n")


def test_options_are_replaced_in_their_place() -> None:
    odd = b'{"stream":true,  "stream_options" :\n{ "include_usage":false }, "text":"\\u00e9" }'
    pieces = inject([odd[:30], odd[30:]], b'{ "include_usage":false }', "vllm")
    assert pieces == [odd.replace(b'{ "include_usage":false }', b'{"include_usage":true}')]


@pytest.mark.parametrize(
    "odd",
    [
        # another object with the same member follows
        b'{"stream":true,"stream_options":null,"tools":[{"stream_options":null}]}',
        # escaped so that only a decoder finds it, with another object's unescaped member present
        b'{"stream":true,"tools":[{"stream_options":null}],"stream_\\u006fptions":null}',
        b'{"stream":true,"stream_\\u006fptions":null}',
    ],
)
def test_if_the_place_is_in_doubt_a_member_is_added(odd: bytes) -> None:
    """The engines use the last of two members with the same name."""
    pieces = inject([odd], b"null", "vllm")
    assert pieces is not None
    assert b"".join(pieces) == odd[:-1] + b',"stream_options":{"include_usage":true}}'


def test_of_two_members_the_last_counts() -> None:
    odd = b'{"stream":true,"stream_options":null,"stream_options":null}'
    pieces = inject([odd], b"null", "vllm")
    assert pieces is not None
    assert json.loads(b"".join(pieces))["stream_options"] == {"include_usage": True}


def test_a_member_of_another_object_does_not_disturb() -> None:
    odd = b'{"stream":true,"tools":[{"stream_options":1}],"stream_options":null}'
    pieces = inject([odd], b"null", "vllm")
    assert pieces is not None
    changed = json.loads(b"".join(pieces))
    assert changed["tools"] == [{"stream_options": 1}]
    assert changed["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("odd", [b"", b"  ", b"[1]", b'"{', b"--boundary\r\n{"])
def test_what_is_no_object_stays(odd: bytes) -> None:
    assert inject([odd], None, "vllm") is None
    assert inject([], None, "vllm") is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    options=JSON,
    others=st.dictionaries(st.text(), JSON, max_size=4),
    engine=st.sampled_from(ENGINES),
    cut=st.integers(0, 60),
)
def test_any_body_keeps_its_meaning(
    options: Any, others: dict[str, Any], engine: str, cut: int
) -> None:
    whole = {**others, "stream": True, "stream_options": options}
    data = json.dumps(whole).encode()
    pieces = inject([data[:cut], data[cut:]], asked(options), engine)
    if pieces is not None:
        changed = json.loads(b"".join(pieces))
        assert changed.pop("stream_options")["include_usage"] is True
        del whole["stream_options"]
        assert changed == whole
