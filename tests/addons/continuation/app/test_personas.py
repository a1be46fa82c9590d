"""An engine that can continue a text accepts the request for the rest, as its persona does."""

import json

import pytest

from router.addons.continuation.request import continued
from router.fleet.engines.common.registry import ENGINES
from router.lab.emulator.settings import PERSONAS
from tests.app.emulator.conftest import started
from tests.app.emulator.personas.test_contract import CHAT, CHAT_PATH

CONTINUING = [name for name in PERSONAS if ENGINES[name].continues]


@pytest.mark.parametrize("persona", CONTINUING)
def test_it_goes_on_where_a_text_ends(persona: str) -> None:
    rest = continued("chat", json.dumps({**CHAT, "stream": True}).encode(), "The sea", 2)
    assert isinstance(rest, bytes)
    for fleet in started(f"--persona={persona}"):
        answer = fleet.http.post(fleet.url + CHAT_PATH, content=rest)
        assert answer.status_code == 200
        assert answer.content.rstrip().endswith(b"data: [DONE]")
