"""A request with two Content-Type fields is refused: engines read the first, the router the
last.
"""

from __future__ import annotations

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import echo
from tests.harness.messages import chat
from tests.harness.running import assert_error, running, scenario


@pytest.mark.parametrize("field", ["content-type: text/plain", "CONTENT-TYPE: application/json"])
@scenario
async def test_it_is_refused(field: str) -> None:
    async with running(echo) as router:
        for _ in range(2):  # a refused head is not cached
            answer = await router.ask(chat(field), "POST")
            assert_error(answer, Reason.BAD_HEADER)
        assert not router.replica.requests
