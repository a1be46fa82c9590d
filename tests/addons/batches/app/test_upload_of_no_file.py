"""A form with 64 KiB of bytes outside its file is refused at that point, not at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.addons.batches.api.test_form import WITHOUT_END
from tests.addons.batches.app.helpers import open_door
from tests.addons.batches.app.test_uploads import files_in
from tests.addons.forms import MULTIPART
from tests.harness.behaviours import json_ok
from tests.harness.messages import request
from tests.harness.replica import eventually
from tests.harness.running import scenario

ANNOUNCED = f"Content-Length: {64 * 1024 * 1024}"
SENT = 256 * 1024


@pytest.mark.parametrize("name", ["lines before", "a field", "bytes behind the end"])
@scenario
async def test_it_is_refused_before_its_end(name: str, tmp_path: Path) -> None:
    start, filler = WITHOUT_END[name]
    async with open_door(tmp_path, json_ok) as router:
        client = await router.client()
        await client.send(request("/v1/files", MULTIPART, ANNOUNCED, method="POST") + start)
        await client.send(filler * (SENT // len(filler)))
        response = await client.recv_response("POST")
        assert (response.status, response.error()["code"]) == (400, "bad_multipart")
        client.close()
        await eventually(lambda: not files_in(tmp_path), "nothing stays of it")
