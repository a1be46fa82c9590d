"""Members of a body that choose adapters or priorities are refused beyond the caller's limits."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from router.core.errors import Reason, RouterError
from router.intake import fields as body_fields
from router.intake.authority import (
    check_adapters,
    check_default,
    check_no_background,
    check_no_priority,
)
from router.intake.fields import Fields
from router.intake.shapes import Members
from tests.intake.members import made

MODELS = frozenset({"base", "own"})
HUGE = "x" * (256 * 1024)


def fields_of(body: dict[str, Any] | bytes) -> Fields:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return body_fields.fields_of(msgspec.json.decode(raw, type=Members))


def refusal(check: Callable[[], None]) -> tuple[Reason, str | None]:
    with pytest.raises(RouterError) as caught:
        check()
    return caught.value.reason, caught.value.param


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"lora_path": None},
        {"lora_path": "own"},
        {"lora_path": ["own", None, "base"]},
        {"lora_path": []},
        {"lora": None, "lora_request": None},
        {"parameters": None},
        {"parameters": "lora_path"},
        {"parameters": [{"lora_path": "other"}]},
        {"parameters": {}},
        {"parameters": {"lora_path": "own", "adapter_id": "base"}},
        {"parameters": {"adapter_id": None}},
        {"parameters": {"parameters": {"lora_path": "other"}}},  # not passed on as a request
    ],
)
def test_adapters_within_the_keys_models_pass(body: dict[str, Any]) -> None:
    check_adapters(fields_of(body), MODELS)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"lora_path": "other"}, "lora_path"),
        ({"lora_path": "Own"}, "lora_path"),
        ({"lora_path": ["own", "other"]}, "lora_path"),
        ({"lora_path": [["own"]]}, "lora_path"),
        ({"lora_path": {"own": 1}}, "lora_path"),
        ({"lora_path": 7}, "lora_path"),
        ({"lora_path": False}, "lora_path"),
        ({"lora_path": ""}, "lora_path"),
        ({"lora": []}, "lora"),
        ({"lora": [{"id": 0, "scale": 1}]}, "lora"),
        ({"lora_request": {"lora_path": "/x"}}, "lora_request"),
        ({"parameters": {"lora_path": "other"}}, "parameters.lora_path"),
        ({"parameters": {"adapter_id": "other"}}, "parameters.adapter_id"),
        (b'{"lora_path":"own\xff"}', "lora_path"),
    ],
)
def test_other_adapters_are_refused(body: dict[str, Any] | bytes, param: str) -> None:
    assert refusal(lambda: check_adapters(fields_of(body), MODELS)) == (
        Reason.MODEL_NOT_ALLOWED,
        param,
    )


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"lora_path": HUGE}, "lora_path"),
        ({"parameters": {"lora_path": HUGE}}, "parameters.lora_path"),
        ({"parameters": {"x": HUGE * 4}}, "parameters"),
    ],
)
def test_members_that_are_too_long_to_judge_are_refused(body: dict[str, Any], param: str) -> None:
    assert refusal(lambda: check_adapters(fields_of(body), MODELS)) == (Reason.UNREAD_BODY, param)


def test_an_adapter_that_is_no_text_is_refused() -> None:
    fields = made(lora_path=msgspec.Raw(b'"\\ud800"'))
    assert refusal(lambda: check_adapters(fields, MODELS)) == (
        Reason.MODEL_NOT_ALLOWED,
        "lora_path",
    )


def test_parameters_that_an_engine_could_read_differently_are_refused() -> None:
    fields = made(parameters=msgspec.Raw(b'{"lora_path":'))
    assert refusal(lambda: check_adapters(fields, MODELS))[0] is Reason.BAD_JSON
    assert refusal(lambda: check_no_priority(fields))[0] is Reason.BAD_JSON


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"priority": None},
        {"priority": "high"},
        {"priority": ""},
        {"priority": [1]},
        {"priority": {"n": 1}},
        {"parameters": {"priority": "low"}},
        {"parameters": [{"priority": 1}]},
        {"other": 1},
    ],
)
def test_what_no_engine_reads_as_a_number_passes(body: dict[str, Any]) -> None:
    check_no_priority(fields_of(body))


@pytest.mark.parametrize(
    "value",
    [0, -1, 1.5, 1e300, True, False, "7", " -7 ", "1e3", "inf", "nan", "1_000"],
)
@pytest.mark.parametrize("nested", [False, True])
def test_what_an_engine_may_read_as_a_number_is_refused(value: object, nested: bool) -> None:
    body: dict[str, Any] = {"priority": value}
    param = "priority"
    if nested:
        body, param = {"parameters": body}, "parameters.priority"
    assert refusal(lambda: check_no_priority(fields_of(body))) == (Reason.BAD_PRIORITY, param)


def test_a_priority_that_is_no_json_or_too_long_is_refused() -> None:
    odd = made(priority=msgspec.Raw(b'"\xff"'))
    assert refusal(lambda: check_no_priority(odd)) == (Reason.BAD_PRIORITY, "priority")
    long = fields_of({"priority": HUGE})
    assert refusal(lambda: check_no_priority(long)) == (Reason.UNREAD_BODY, "priority")


def default(
    body: dict[str, Any],
    path: str,
    engine: str,
    own: str = "secret",
    adapters: tuple[str, ...] = (),
    is_known: bool = True,
) -> None:
    served = [(engine, frozenset({own}), frozenset(adapters))]
    check_default(fields_of(body), path.encode(), served, MODELS, is_known=is_known)


CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("body", "path", "engine", "is_known"),
    [
        ({}, CHAT, "vllm", True),
        ({}, "/unknown", "vllm", False),  # on this path every engine uses `model`
        ({}, CHAT, "", True),  # the engine is unknown, but the path is not specific to an engine
        ({"lora_path": "own"}, "/generate", "sglang", True),
        ({"lora_path": ["own", "own"]}, "/generate", "sglang", True),
        ({"parameters": {"adapter_id": "own"}}, "/generate", "tgi", True),
        ({"parameters": {"lora_path": "own"}}, "/vertex_generate", "sglang", True),
        ({"model": "own"}, CHAT, "sglang", True),
    ],
)
def test_an_engine_that_serves_what_the_body_names_passes(
    body: dict[str, Any], path: str, engine: str, is_known: bool
) -> None:
    default(body, path, engine, is_known=is_known)


@pytest.mark.parametrize(
    ("body", "path", "engine", "is_known"),
    [
        ({"model": "own"}, "/generate", "sglang", True),
        ({"model": "own", "lora_path": None}, "/generate", "sglang", True),
        ({"lora_path": []}, "/generate", "sglang", True),
        ({"lora_path": ["own", None]}, "/generate", "sglang", True),  # null: the base model
        ({"lora_path": "own"}, "/encode", "sglang", True),
        ({"lora_path": "own"}, "/unknown", "sglang", False),
        ({"parameters": {"lora_path": "own"}}, "/generate", "tgi", True),
        ({"parameters": []}, "/generate", "tgi", True),
        ({"model": "own"}, "/generate", "", True),  # the engine may have such a path
    ],
)
def test_an_engine_that_would_serve_its_own_model_is_refused(
    body: dict[str, Any], path: str, engine: str, is_known: bool
) -> None:
    check = refusal(lambda: default(body, path, engine, is_known=is_known))
    assert check == (Reason.MODEL_NOT_ALLOWED, "model")
    default(body, path, engine, own="base", is_known=is_known)  # the engine's base model is allowed


def test_a_plain_name_of_an_adapter_is_not_read_by_every_engine() -> None:
    body = {"model": "own"}
    assert refusal(lambda: default(body, CHAT, "sglang", adapters=("own",)))
    default({**body, "lora_path": "own"}, CHAT, "sglang", adapters=("own",))
    default(body, CHAT, "vllm", adapters=("own",))


def test_every_replica_that_may_get_the_request_counts() -> None:
    served = [
        ("vllm", frozenset({"secret"}), frozenset[str]()),
        ("sglang", frozenset({"secret"}), frozenset[str]()),
    ]
    fields = fields_of({"model": "own"})
    check_default(fields, b"/generate", served[:1], MODELS, is_known=True)
    check_default(fields, b"/generate", [], MODELS, is_known=True)
    with pytest.raises(RouterError, match="`lora_path`"):
        check_default(fields, b"/generate", served, MODELS, is_known=True)


@pytest.mark.parametrize("value", [True, 1, "true", "yes", 2, "", [], {}, [0] * 99])
def test_a_response_in_the_background_is_refused(value: Any) -> None:
    fields = fields_of({"background": value})
    assert refusal(lambda: check_no_background(fields)) == (
        Reason.BACKGROUND_NOT_SERVED,
        "background",
    )


@pytest.mark.parametrize(
    "body", [{}, *({"background": value} for value in (None, False, 0, "off"))]
)
def test_a_response_in_the_foreground_passes(body: dict[str, Any]) -> None:
    check_no_background(fields_of(body))
