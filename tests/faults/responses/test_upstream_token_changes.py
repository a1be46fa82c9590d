"""A reload changes the upstream token: every part that talks to replicas sends the new one."""

from pathlib import Path

import pytest

from router.config.model import Prefix, Upstream
from tests.addons.needed import needs
from tests.harness.control import HEALTH, METRICS
from tests.harness.messages import chat, completion, json_response, response
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import running, scenario

TOKENIZE, CHAT, SOURCES = "/tokenize", "/v1/chat/completions", "/kv_event_sources"
# several blocks, so that its token IDs are requested
LONG = "The quick brown fox jumps over the lazy dog. " * 60


class Engine:
    """A replica that keeps, for each path, the credential of the last request."""

    def __init__(self) -> None:
        self.last: dict[str, str | None] = {}
        self.server = HostileReplica(self.behave, asked_apart=False)

    async def behave(self, connection: ReplicaConnection) -> None:
        while asked := await connection.recv_request():
            self.last[asked.target] = asked.header("authorization")
            if asked.target == TOKENIZE:
                await connection.send(json_response({"tokens": [1, 2, 3]}))
            elif asked.target == CHAT:
                await connection.send(completion())
            elif self.server.control.is_question(asked):
                await self.server.control.answer(connection, asked)
            else:
                await connection.send(response(404))

    async def all_carry(self, credential: str, paths: set[str]) -> None:
        """Wait until the last request for each path carries this credential.

        A probe or poll in progress at a reload may still carry the old one.
        """
        await eventually(lambda: paths <= self.last.keys(), "one request for each path")
        await eventually(lambda: set(self.last.values()) == {credential}, credential)


@needs("kv_events")
@pytest.mark.parametrize("in_file", [False, True], ids=["token", "token_file"])
@scenario
async def test_every_part_sends_the_new_token(in_file: bool, tmp_path: Path) -> None:
    file = tmp_path / "token"

    def upstream(token: str) -> Upstream:
        file.write_text(token)
        return Upstream(token_file=str(file)) if in_file else Upstream(token=token)

    engine = Engine()
    exact = Prefix(exact=True, tokens_wait_s=5.0)
    async with running(engine.server, upstream=upstream("old"), prefix=exact) as router:
        for token in ("old", "new"):
            if token == "new":
                router.change(upstream=upstream(token))
                await router.app.reload()
                engine.last.clear()
            # Each prompt differs, because the router caches token IDs.
            messages = [{"role": "user", "content": f"{token}: {LONG}"}]
            assert (await router.ask(chat(messages=messages))).status == 200
            wanted = {HEALTH, METRICS, TOKENIZE, CHAT}
            if not in_file:  # an unchanged replica's sources are queried only every 5 s
                wanted.add(SOURCES)
            await engine.all_carry(f"Bearer {token}", wanted)
