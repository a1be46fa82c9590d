"""A redirect is passed on to the client; the router never follows one.

A redirect to the replica itself leads the client back to the router.
"""

import pytest

from router.config.model import Replica
from tests.harness.behaviours import answer, answer_by, json_ok
from tests.harness.control import PATHS
from tests.harness.messages import chat, request, response
from tests.harness.reading import Request
from tests.harness.replica import HostileReplica
from tests.harness.running import running, scenario


@pytest.mark.parametrize("asked", [chat(), request("/plain")])
@scenario
async def test_it_is_not_followed(asked: bytes) -> None:
    async with HostileReplica(json_ok) as inside:
        location = f"{inside.url}/secret"
        async with running(answer(response(307, f"Location: {location}"))) as router:
            got = await router.ask(asked)
            assert got.status == 307
            assert got.header("location") == location
        assert not inside.connections


CASES = [
    ("http://{own}/v1/chat/completions?a=b", "/v1/chat/completions?a=b"),
    ("https://{own}/v1/models", "/v1/models"),
    ("//{own}/v1/models", "/v1/models"),
    ("HTTP://127.0.0.1/v1/models", "/v1/models"),  # FastAPI behind its own proxy
    ("http://{own}/base/v1/models", "/v1/models"),
    ("/base/v1/models", "/v1/models"),
    ("http://{own}", "/"),
    ("http://{own}?a", "/?a"),
    # The result must not lead to another server.
    ("http://{own}//other.test/a", "/other.test/a"),
    ("http://{own}/\\other.test/a", "/other.test/a"),
    ("http://other.test/base/a", "http://other.test/base/a"),
    ("http://{own}.other.test/a", "http://{own}.other.test/a"),
    ("http://{own}@other.test/a", "http://{own}@other.test/a"),
    ("http://127.0.0.1:1/a", "http://127.0.0.1:1/a"),
    ("/a", "/a"),
    ("next?page=2", "next?page=2"),
]


@pytest.mark.parametrize("status", [201, 307, 308])
@pytest.mark.parametrize("asked", [chat(), request("/plain")])
@scenario
async def test_the_replicas_address_is_not_shown(asked: bytes, status: int) -> None:
    lines: list[str] = []

    def redirect(got: Request) -> bytes:
        is_probe = got.target.removeprefix("/base") in PATHS
        return response() if is_probe else response(status, lines[-1])

    engine = HostileReplica(answer_by(redirect))
    engine.start()
    own = engine.url.removeprefix("http://")
    fleet = (Replica(url=f"{engine.url}/base", id="r0", models=("m",)),)
    async with running(engine, replicas=fleet) as router:
        for location, expected in CASES:
            lines.append(f"Location: {location.format(own=own)}")
            got = await router.ask(asked)
            assert got.header("location") == expected.format(own=own), location
