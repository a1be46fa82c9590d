"""A form with a numeric priority is refused where a ceiling applies and the engine has priorities.

The router never rewrites forms.
"""

from pathlib import Path

import pytest

from router.config.model import Keys, Priority
from router.core.errors import Reason
from tests.app.test_keys_at_the_door import BEARER, acme, file_of
from tests.harness.behaviours import json_ok
from tests.harness.messages import request
from tests.harness.running import Router, assert_error, running, scenario

AUDIO = "/v1/audio/transcriptions"
KIND = "Content-Type: multipart/form-data; boundary=b"
FILE = '--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF\r\n'


def form(path: str, *given: tuple[str, str], key: str = "") -> bytes:
    fields = (("model", "m"), *given)
    parts = [
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields
    ]
    body = FILE + "".join(parts) + "--b--\r\n"
    return request(path, KIND, *([key] if key else []), method="POST", body=body.encode())


def posts(router: Router) -> list[bytes]:
    return [bytes(r.body) for r in router.replica.requests if r.method == "POST"]


@pytest.mark.parametrize("path", [AUDIO, "/v1/audio/translations", "/v1/images/edits"])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("value", ["-100000", " 7 ", "1e9"])
@scenario
async def test_it_is_refused(value: str, engine: str, path: str) -> None:
    rules = Priority(ceiling="normal")
    async with running(json_ok, replica={"engine": engine}, priority=rules) as router:
        answer = await router.ask(form(path, ("priority", value)), "POST")
        assert_error(answer, Reason.BAD_PRIORITY, 400)
        assert answer.error()["param"] == "priority"
        assert "x-priority" in answer.error()["message"]
        assert posts(router) == []


@pytest.mark.parametrize(
    ("engine", "ceiling", "fields"),
    [
        ("vllm", "critical", [("priority", "-5")]),  # `critical` is no limit
        ("llamacpp", "normal", [("priority", "-5")]),  # llama.cpp has no priorities
        ("vllm", "normal", [("priority", "high")]),  # the value is not a number
        ("vllm", "normal", [("prompt", "priority")]),
        ("vllm", "normal", []),
    ],
)
@scenario
async def test_what_no_ceiling_concerns_passes(
    engine: str, ceiling: str, fields: list[tuple[str, str]]
) -> None:
    rules = Priority(ceiling=ceiling)  # type: ignore[arg-type]
    async with running(json_ok, replica={"engine": engine}, priority=rules) as router:
        asked = form(AUDIO, *fields)
        assert (await router.ask(asked, "POST")).status == 200
        assert posts(router) == [asked.partition(b"\r\n\r\n")[2]]


@scenario
async def test_the_ceiling_of_a_key(tmp_path: Path) -> None:
    keys = Keys(file=file_of(tmp_path, acme(ceiling="low")))
    rules = Priority(ceiling="critical")
    async with running(json_ok, keys=keys, priority=rules) as router:
        asked = form(AUDIO, ("priority", "-5"), key=BEARER)
        assert_error(await router.ask(asked, "POST"), Reason.BAD_PRIORITY, 400)
        asked = form(AUDIO, key=f"{BEARER}\r\nx-priority: critical")
        assert (await router.ask(asked, "POST")).status == 200
        assert (await router.log(2))[1]["class"] == "low"


@pytest.mark.parametrize("name", ["lora", "lora_path"])
@scenario
async def test_an_adapter_in_a_form(name: str, tmp_path: Path) -> None:
    keys = Keys(file=file_of(tmp_path, acme(models=["m"])))
    async with running(json_ok, keys=keys) as router:
        asked = form(AUDIO, (name, "secret"), key=BEARER)
        assert_error(await router.ask(asked, "POST"), Reason.MODEL_NOT_ALLOWED, 403)
        assert posts(router) == []
