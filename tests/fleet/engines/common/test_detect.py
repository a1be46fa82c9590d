"""Engines are detected by their answers, and unknown servers stay unknown."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from router.fleet.engines.common.detect import QUESTIONS, detect
from router.fleet.engines.common.registry import ENGINES
from tests.fleet.engines.pages import Page, pages, read

TEXTS = [page for page in pages() if page.name.endswith(".txt")]
UNMARKED = {"dynamo.txt": None, "trtllm-1.0.txt": None}


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.name)
def test_by_its_metrics(page: Page) -> None:
    expected = UNMARKED.get(page.name, page.engine)
    assert detect(metrics=page.body) == expected
    assert detect(metrics=page.body[: len(page.body) // 2]) in (expected, None)


def test_by_metric_names_and_not_by_what_is_said_of_them() -> None:
    assert (
        detect(metrics=b'# HELP x the vllm:y\nrequests{app="tgi_"} 1\n tgi_queue_size 1\n') is None
    )
    assert detect(metrics=b"tgi_queue_size 1\n") == "tgi"


@pytest.mark.parametrize(
    ("owner", "engine"),
    [
        ("vllm", "vllm"),
        ("sglang", "sglang"),
        ("tensorrt_llm", "trtllm"),
        ("llamacpp", "llamacpp"),
        ("openai", None),
        ("", None),
    ],
)
def test_by_who_owns_its_models(owner: str, engine: str | None) -> None:
    assert detect(owned_by=[owner]) == engine
    assert detect(owned_by=[owner, "somebody"]) == engine


def test_owners_that_disagree_say_nothing() -> None:
    assert detect(owned_by=["vllm", "sglang"]) is None


def test_metrics_are_surer_than_the_rest() -> None:
    answers = {"/info": msgspec.json.decode(read("tgi-info.json"))}
    assert detect(metrics=b"sglang:x 1\n", owned_by=["vllm"], answers=answers) == "sglang"
    assert detect(owned_by=["vllm"], answers=answers) == "vllm"


@pytest.mark.parametrize(
    ("path", "name", "engine"),
    [
        ("/info", "tgi-info.json", "tgi"),
        ("/props", "llamacpp-props.json", "llamacpp"),
        ("/server_info", "sglang-server-info.json", "sglang"),
        ("/metrics", "trtllm-iterations.json", "trtllm"),
    ],
)
def test_by_a_document_of_its_own(path: str, name: str, engine: str) -> None:
    document = msgspec.json.decode(read(name))
    assert detect(answers={path: document}) == engine
    for other in {"/metrics", *QUESTIONS} - {path}:
        assert detect(answers={other: document}) is None


@pytest.mark.parametrize(
    "answers",
    [
        {"/info": {"model_id": "m", "max_concurrent_requests": 512, "max_input_length": 512}},
        {"/server_info": {"disaggregated_params": {}}},
        {"/version": {"version": "1.2.1"}},
        {"/props": {}},
        {"/metrics": {}},
    ],
)
def test_strangers(answers: dict[str, Any]) -> None:
    assert detect(answers=answers) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
)


@given(st.binary(max_size=100), st.lists(st.text(max_size=5)), st.dictionaries(
    st.sampled_from(["/metrics", *QUESTIONS]), JSON
))  # fmt: skip
def test_any_answers(metrics: bytes, owners: list[str], answers: dict[str, Any]) -> None:
    found = detect(metrics=metrics, owned_by=owners, answers=answers)
    assert found is None or found in ENGINES
