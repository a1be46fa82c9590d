"""A form in which the engine could read another model than the router is refused."""

from __future__ import annotations

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import json_ok
from tests.harness.messages import request
from tests.harness.running import assert_error, running, scenario


def part(named: str, model: str, boundary: str) -> str:
    return f"--{boundary}\r\nContent-Disposition: form-data; {named}\r\n\r\n{model}\r\n"


TWO = part("name=model", "secret", "b") + part("name=model", "m", "c") + "--c--\r\n--b--\r\n"
ANGLES = part("name=model", "secret", "b") + part("name=model", "m", "<b>") + "--<b>--\r\n--b--\r\n"
NAMES = part("name=model", "m", "b") + part("name=<model>", "secret", "b") + "--b--\r\n"


@pytest.mark.parametrize(
    ("boundary", "body"),
    [
        ("boundary=c; boundary*0=b", TWO),
        ("boundary=c; boundary*=utf-8''b", TWO),
        ("boundary=<b>", ANGLES),
        ("boundary=b", NAMES),
    ],
)
@scenario
async def test_it_is_refused(boundary: str, body: str) -> None:
    """python-multipart up to 0.0.20 reads the model `secret` in each of these forms."""
    async with running(json_ok) as router:
        kind = f"content-type: multipart/form-data; {boundary}"
        data = request("/v1/audio/transcriptions", kind, method="POST", body=body.encode())
        assert_error(await router.ask(data), Reason.BAD_MULTIPART)
        assert not [r for r in router.replica.requests if r.method == "POST"]
