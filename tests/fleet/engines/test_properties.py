"""For any input, the readers raise nothing and return no impossible value."""

import json
from typing import Any

from hypothesis import given, strategies as st

from router.fleet.engines.common.base import Facts, JsonSource, Known
from router.fleet.engines.common.registry import ENGINES
from router.fleet.signals import Signals
from tests.examples import examples
from tests.fleet.engines.pages import Page, page, pages, read

SHORT = [p for p in pages() if len(p.body) < 10_000]
SOURCES = [source for engine in ENGINES.values() for source in engine.sources]
JSON_SOURCES = [source for source in SOURCES if isinstance(source, JsonSource)]
COUNTS = (
    *("running", "waiting", "kv_tokens", "block_tokens", "slots", "prompt_tokens"),
    *("generated_tokens", "cache_queries", "cache_hits", "preemptions"),
)


def assert_possible(signals: Signals | None) -> None:
    if signals is None:
        return
    for name in COUNTS:
        value = getattr(signals, name)
        assert value is None or (type(value) is int and value >= 0), name
    for name in ("kv_tokens", "block_tokens", "slots"):
        assert getattr(signals, name) != 0, name
    assert signals.kv_usage is None or 0 <= signals.kv_usage <= 1
    assert signals.started_at is None or signals.started_at > 0
    assert type(signals.asleep) is bool
    assert all(isinstance(name, str) and name for name in signals.adapters)


@given(st.integers(0, 60_000))
@examples(60)
def test_a_cut_never_makes_another_number(cut: int) -> None:
    """With one series per family, each figure is right or unknown, wherever the page is cut."""
    whole = page("vllm-0.32-recorded.txt")
    signals = whole.source.parse(whole.body[:cut])
    assert signals is not None
    for name in Signals.__struct_fields__:
        assert getattr(signals, name) in (None, getattr(whole.signals, name)), name


@given(st.sampled_from(SHORT), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=8))
@examples(300)
def test_bytes_flipped(page: Page, flips: list[tuple[int, int]]) -> None:
    body = bytearray(page.body)
    for at, byte in flips:
        body[at % len(body)] = byte
    assert_possible(page.source.parse(bytes(body), page.known))


@given(st.sampled_from(SHORT), st.data())
def test_lines_lost_doubled_and_shuffled(page: Page, data: st.DataObject) -> None:
    lines = page.body.splitlines(keepends=True)
    chosen = data.draw(st.lists(st.sampled_from(lines), max_size=2 * len(lines)))
    assert_possible(page.source.parse(b"".join(chosen), page.known))


NUMBERS = st.sampled_from(["NaN", "+Inf", "-Inf", "-1.0", "1e400", "x", "", "1e308", "0.5"])


@given(st.sampled_from([p for p in SHORT if p.name.endswith(".txt")]), st.data())
def test_numbers_replaced(page: Page, data: st.DataObject) -> None:
    lines = page.body.decode().splitlines()
    for index, line in enumerate(lines):
        if line and not line.startswith("#") and data.draw(st.booleans()):
            lines[index] = line.rpartition(" ")[0] + " " + data.draw(NUMBERS)
    odd: set[str] = set()
    assert_possible(page.source.parse("\n".join([*lines, ""]).encode(), page.known, odd))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.sampled_from([p for p in SHORT if p.name.endswith(".json")]), st.data())
@examples(200)
def test_values_of_json_replaced(page: Page, data: st.DataObject) -> None:
    document = _replaced(json.loads(page.body), data)
    assert_possible(page.source.parse(json.dumps(document).encode(), page.known))


@given(
    st.sampled_from(["tgi-info.json", "llamacpp-props.json", "sglang-server-info.json"]), st.data()
)
def test_any_facts(name: str, data: st.DataObject) -> None:
    source = ENGINES[name.partition("-")[0]].facts
    assert source is not None
    document = _replaced(json.loads(read(name)), data)
    facts = source.parse(json.dumps(document).encode())
    for field in ("slots", "kv_tokens", "block_tokens", "context_tokens"):
        value = getattr(facts, field)
        assert value is None or (type(value) is int and value > 0)
    assert_possible(ENGINES["tgi"].sources[0].parse(read("tgi-2.txt"), Known(facts=facts)))
    assert_possible(ENGINES["llamacpp"].sources[0].parse(read("llamacpp.txt"), Known(facts=facts)))
    assert source.parse(b"") == Facts()


def test_deep_json_is_no_answer() -> None:
    for source in JSON_SOURCES:
        assert source.parse(b"[" * 200_000) is None


def _replaced(value: Any, data: st.DataObject) -> Any:
    if data.draw(st.integers(0, 7)) == 0:
        return data.draw(JSON)
    if isinstance(value, dict):
        return {key: _replaced(item, data) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, data) for item in value]
    return value
